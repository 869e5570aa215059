"""What is counted of demonstrations: marks, what they decide, and what they get wrong."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from benchmarks.experiments import demonstrations
from benchmarks.experiments.demonstrations import NAME, main, table


def demonstration(**verdicts: tuple[float, str]) -> dict[str, Any]:
    """Return a demonstration with a ratio and a verdict for each experiment."""
    return {
        "seconds": 90.0,
        "rounds": 3,
        "figures": 20,
        "marked": 1,
        "differences": [
            {
                "experiment": name,
                "side": "torch async",
                "against": "mxnet async",
                "ratio": [ratio, None, None],
                "verdict": verdict,
            }
            for name, (ratio, verdict) in verdicts.items()
        ],
    }


def test_verdicts_are_held_against_those_of_the_long_comparison() -> None:
    undecided = "no difference shown"
    reference = demonstration(a=(1.1, "slower"), b=(0.5, "faster"), c=(2.0, "slower"))
    short = demonstration(a=(0.9, "faster"), b=(0.6, "faster"), c=(1.8, undecided))
    rows = table({"0": [short], "reference": [reference]}).splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells == [
        ["0 spinning", "90", "3", "1 of 20", "2 of 3", "1 of 2", "1"],
        ["reference", "90", "3", "1 of 20", "3 of 3", "2 of 2", "0"],
    ]


def test_each_demonstration_is_added_to_those_that_are_saved(
    tmp_path: Path, monkeypatch: Any
) -> None:
    asked: list[list[str]] = []

    def demonstrate(options: list[str]) -> dict[str, Any]:
        asked.append(options)
        return demonstration(a=(1.1, "slower"))

    monkeypatch.setattr(demonstrations, "demonstrate", demonstrate)
    for options in (["--repetitions", "2"], ["--spinning", "1"], ["--minutes", "15"]):
        done = CliRunner().invoke(main, ["--out", str(tmp_path), *options])
        assert done.exit_code == 0, done.output
    saved = json.loads((tmp_path / f"{NAME}.json").read_text())["demonstrations"]
    assert {key: len(runs) for key, runs in saved.items()} == {"0": 2, "1": 1, "reference": 1}
    assert asked == [["--quick"]] * 3 + [["--minutes", "15", "--no-traces"]]
