"""No table of measured numbers is written by hand, and none differs from the file that it comes
from.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.experiments.exercises import with_source
from benchmarks.tables.__main__ import BLOCK, main, pages, refill, write_table, written
from parallel_core.measurement.result import Counted
from parallel_core.system.files import write_json
from tests.parallel_core.comparison import made_up
from tests.parallel_core.comparison.test_account import scaled

MEASURED = re.compile(r"\d\s?(ns|μs|ms|s|min|%|×|images/s|[GM]B/s|GFLOP/s)(?=[\s,.;:)]|$)")
LINES = st.text("ab|-<! \n", max_size=30)
NAMES = st.from_regex("[a-z-]{1,8}( [a-z-]{1,8}){0,2}", fullmatch=True)
FOLDER = Path("some/folder")
PAGE = Path("README.md")


def block(name: str, body: str) -> str:
    return f"<!-- table: {name} from some/folder -->\n{body}\n<!-- end -->"


def about(name: str, folder: Path) -> str:
    return f"| {name} in {folder} |"


@given(st.lists(st.tuples(LINES, NAMES, LINES), max_size=4), LINES)
def test_every_block_is_filled_once_and_for_all(
    parts: list[tuple[str, str, str]], last: str
) -> None:
    text = "".join(f"{before}\n{block(name, body)}\n" for before, name, body in parts) + last
    filled = refill(text, PAGE, about)
    bodies = [f"\n{about(name, FOLDER)}\n" for _, name, _ in parts]
    expected = [
        f"{part[0]}\n{block(part[1], body)}\n" for part, body in zip(parts, bodies, strict=True)
    ]
    assert filled == "".join(expected) + last
    assert refill(filled, PAGE, about) == filled


@pytest.mark.parametrize(
    ("written", "on_the_page"),
    [
        ("[all](some/file.json): 1 ms", "[all](../../some/file.json): 1 ms"),
        ("![it](docs/how-to/it.png)", "![it](../how-to/it.png)"),
        ("[all](https://example.org/all)", "[all](https://example.org/all)"),
        ("[all](#all), [a (b)]", "[all](#all), [a (b)]"),
    ],
)
def test_links_are_relative_to_the_page(written: str, on_the_page: str) -> None:
    filled = refill(block("one", ""), Path("docs/explanation/page.md"), lambda *_: written)
    assert filled == block("one", f"\n{on_the_page}\n")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table: one from folder -->\nno end\n",
        "<!-- table: one -->\n<!-- end -->\n",
        "    <!-- table: one from folder -->\n<!-- end -->\n",
        f"<!-- table: one from folder -->\n{block('two', '')}\n",
    ],
)
def test_a_block_that_would_be_passed_over_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        refill(text, PAGE, about)


@pytest.mark.long
def test_every_table_is_in_a_block_and_as_its_file_says(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    differing = [
        str(path) for path, text in written() if not path.exists() or path.read_text() != text
    ]
    assert differing == [], "python -m benchmarks.tables"
    by_hand = [line for path in pages() for line in BLOCK.sub("", path.read_text()).splitlines()]
    assert [line for line in by_hand if line.startswith("|") and MEASURED.search(line)] == []
    assert MEASURED.search("| 4 KiB | 2.4 ms (1.3–3.6) | 2 % |")


@pytest.fixture
def copied(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with one table, beside the results that it comes from."""
    folder = Path("benchmarks/results/a-machine")
    (tmp_path / folder).mkdir(parents=True)
    shutil.copy(root / "benchmarks/results/epyc-2-cores/processes.json", tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text(
        f"Before.\n\n<!-- table: processes from {folder} -->\n<!-- end -->\n\nAfter.\n"
    )
    return folder


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


def test_pages_of_the_site_are_filled_too_with_links_of_their_own(copied: Path) -> None:
    text = f"<!-- table: processes from {copied} -->\n<!-- end -->\n"
    for page in ("docs/explanation/one.md", "docs/_build/one.md", "docs/.kept/one.md"):
        Path(page).parent.mkdir(parents=True)
        Path(page).write_text(text)
    assert [str(path) for path in pages()] == ["README.md", "docs/explanation/one.md"]
    assert run()[0] == 0
    assert (
        f"[processes](../../{copied}/processes.json)."
        in Path("docs/explanation/one.md").read_text()
    )
    assert f"[processes]({copied}/processes.json)." in Path("README.md").read_text()
    assert Path("docs/_build/one.md").read_text() == text


def test_a_table_that_differs_from_its_file_is_found_and_mended(copied: Path) -> None:
    status, told = run("--check")
    assert status == 1
    assert "README.md differs from its results" in told
    assert f"{copied}/processes.md differs" in told
    assert "| 4 KiB |" not in Path("README.md").read_text()
    assert run()[0] == 0
    assert run("--check") == (0, "")
    text = Path("README.md").read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("\nAfter.\n")
    assert "| 4 KiB | 2.42 ms (1.33–3.61) | 2 % |" in text
    assert "Measured on AMD EPYC, 2 cores, 2026-11-22: [processes]" in text


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("<!-- table: what from somewhere -->", "unknown table 'what' (known: first-run, "),
        (
            "<!-- table: processes from nowhere -->",
            "needs nowhere/processes.json, which is not there: measure it",
        ),
        (
            "<!-- table: processes of what from nowhere -->",
            "'processes of what' has not the words that 'processes'",
        ),
    ],
)
def test_what_cannot_be_written_is_one_line(line: str, message: str) -> None:
    Path("README.md").write_text(f"{line}\n<!-- end -->\n")
    status, told = run()
    assert (status, len(told.splitlines())) == (1, 1)
    assert message in told


def test_an_exercises_answer_has_its_counts_its_figures_and_what_failed(tmp_path: Path) -> None:
    cell = made_up.Cell("barriers", "mxnet", "async")
    known = made_up.result(cell, {"a": 1.0}, metrics={"added_wait_fraction": 0.25})
    answered = replace(
        known,
        metric_intervals={"added_wait_fraction": (0.0, 1.0)},
        counts={"left_after_wait": Counted(64, 1064, "a profiler", (64,))},
    )
    path = tmp_path / "experiments" / "exercises.json"
    path.parent.mkdir()
    for torch, figure, problem in (
        (replace(known, problems=("It cannot be",)).as_json(), "0.25", "INVALID: It cannot be."),
        ({"failed": "it was killed"}, "", "not measured: it was killed"),
    ):
        answers = with_source(made_up.MACHINE, {"mxnet": answered.as_json(), "torch": torch})
        path.write_text(json.dumps({"runs": {"barriers": answers}}))
        assert write_table("answer barriers", tmp_path).splitlines()[:5] == [
            "|  | MXNet | PyTorch |",
            "| --- | --- | --- |",
            "| `left_after_wait` | 64 of 1,064 |  |",
            f"| `added_wait_fraction` | 0.25 (0.00–1.00) | {figure} |",
            f"|  |  | {problem} |",
        ]
    with pytest.raises(ValueError, match=r"unknown exercise 'overlap' \(known: barriers\)"):
        write_table("answer overlap", tmp_path)


def test_both_frameworks_planted_faults_share_a_table(tmp_path: Path) -> None:
    launches = {"seconds": 1.5, "planted_seconds": 1.0}
    named = {"named": ["overhead"], **launches}
    documents = {
        "mxnet": [{"slow-launches": named}, {"slow-launches": {"named": [], **launches}}],
        "torch": [{"slow-launches": named}, {"slow-launches": named}],
    }
    for name, trials in documents.items():
        path = tmp_path / f"planted-faults-{name}.json"
        path.write_text(json.dumps({"machine": made_up.MACHINE, "trials": trials}))
    _, _, row, *_ = write_table("planted-faults", tmp_path).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:] == ["1 of 2", "2 of 2", "1.50 (1.50–1.50)", "1.50 (1.50–1.50)"]


@pytest.mark.parametrize("names", [("mxnet", "torch", "jax"), ("torch", "jax")])
def test_comparisons_and_findings_have_all_frameworks(
    root: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    seconds = {"mxnet": 1.0, "torch": 2.0, "jax": 0.5}
    titles = {"mxnet": "MXNet", "torch": "PyTorch", "jax": "JAX"}
    engines = ("async", "sync")
    cells = [
        scaled(made_up.parallel(name, engine), seconds[name] * (1 + (engine == "sync")), 0.5)
        for name in names
        for engine in engines
    ]
    write_json(tmp_path / "comparison.json", made_up.comparison(*cells).as_json())
    answers = write_table("comparison-answer", tmp_path).splitlines()
    # A column for each framework with queues, and one for all of them without.
    assert answers[0].count(" | ") == len(names) + 1
    assert answers[2].split(" | ")[-1].count(" / ") == len(names) - 1

    document = json.loads(
        (root / "benchmarks/results/epyc-avx512-2-cores/allreduce.json").read_text()
    )
    finding = {**document["findings"][0], "target": {}, "verdict": ""}
    document["findings"] = [
        {**finding, "name": f"{name}: time", "estimate": number, "low": number, "high": number}
        for number, name in enumerate(names, 1)
    ]
    (tmp_path / "made-up.json").write_text(json.dumps(document))
    first, _, row, *_ = write_table("findings made-up", tmp_path).splitlines()
    assert first == f"|  | {' | '.join(titles[name] for name in sorted(names))} |"
    shown = [cell.strip().split()[0] for cell in row.strip("|").split("|")]
    assert shown == ["time", *(str(1 + names.index(name)) for name in sorted(names))]
