"""No table of measured numbers is written by hand, and none differs from the file that it comes from."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from benchmarks.experiments.exercises import with_source
from benchmarks.self_test import Rates
from benchmarks.tables.__main__ import main, pages, written
from benchmarks.tables.all_tables import TABLES, write_table
from benchmarks.tables.blocks import BLOCK
from parallel_core.measurement.answer import Answer
from tests.parallel_core.comparison import made_up

MEASURED = re.compile(r"\d\s?(ns|μs|ms|s|min|%|×|images/s|[GM]B/s|GFLOP/s)(?=[\s,.;:)]|$)")


@pytest.fixture
def at_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)


@pytest.mark.usefixtures("at_root")
def test_every_table_and_page_is_as_its_file_says() -> None:
    differing = [str(path) for path, text in written() if not path.exists() or path.read_text() != text]
    assert differing == [], "python -m benchmarks.tables"


@pytest.mark.usefixtures("at_root")
def test_every_table_of_measured_numbers_is_in_a_block() -> None:
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
    Path("README.md").write_text(f"Before.\n\n<!-- table: processes from {folder} -->\n<!-- end -->\n\nAfter.\n")
    return folder


def test_pages_of_the_site_are_filled_too_with_links_of_their_own(copied: Path) -> None:
    block = f"<!-- table: processes from {copied} -->\n<!-- end -->\n"
    for page in ("docs/explanation/one.md", "docs/_build/one.md", "docs/.kept/one.md"):
        Path(page).parent.mkdir(parents=True)
        Path(page).write_text(block)
    assert [str(path) for path in pages()] == ["README.md", "docs/explanation/one.md"]
    assert run()[0] == 0
    assert f"[processes](../../{copied}/processes.json): AMD" in Path("docs/explanation/one.md").read_text()
    assert f"[processes]({copied}/processes.json): AMD" in Path("README.md").read_text()
    assert Path("docs/_build/one.md").read_text() == block


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


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

    document = json.loads((copied / "processes.json").read_text())
    document["findings"][0]["estimate"] = 3000.0
    (copied / "processes.json").write_text(json.dumps(document))
    assert run("--check")[0] == 1


def test_where_numbers_come_from_is_said(copied: Path) -> None:
    path = copied / "processes.json"
    document = json.loads(path.read_text())
    assert "torch 2.13.0+cpu, commit not recorded, 2026-11-22" in TABLES["processes"](copied)
    document["kernels"] = {"torch": ["MKL 2024.2", "oneDNN 3.12.0, AVX-512 kernels"]}
    document["machine"]["commit"] = "abc1234"
    path.write_text(json.dumps(document))
    told = TABLES["processes"](copied)
    assert "torch 2.13.0+cpu (MKL 2024.2; oneDNN 3.12.0, AVX-512 kernels), commit abc1234, 2026-11-22" in told


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("<!-- table: what from somewhere -->", "unknown table 'what' (known: first-run, "),
        ("<!-- table: processes from nowhere -->", "needs nowhere/processes.json, which is not there: measure it"),
        ("<!-- table: processes -->", "a block of README.md is not of the form"),
        ("<!-- table: processes of what from nowhere -->", "'processes of what' has not the words that 'processes'"),
        ("<!-- table: gpu from nowhere -->", "needs nowhere/gpu-*.json, which is not there: measure it"),
    ],
)
def test_what_cannot_be_written_is_one_line(line: str, message: str) -> None:
    Path("README.md").write_text(f"{line}\n<!-- end -->\n")
    status, told = run()
    assert status == 1
    assert message in told
    assert len(told.splitlines()) == 1


def test_words_after_a_tables_name_are_handed_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(folder: Path, experiment: str) -> str:
        return f"{experiment} in {folder}"

    monkeypatch.setitem(cast("dict[str, object]", TABLES), "answer", answer)
    assert write_table("answer overlap", Path("nowhere")) == "overlap in nowhere"


def write_exercise(folder: Path, mxnet: dict[str, Any], torch: dict[str, Any]) -> None:
    path = folder / "experiments" / "exercises.json"
    path.parent.mkdir(exist_ok=True)
    run = with_source(made_up.MACHINE, {"mxnet": mxnet, "torch": torch})
    path.write_text(json.dumps({"runs": {"barriers": run}}))


def test_an_exercise_that_failed_or_is_invalid_says_so(tmp_path: Path) -> None:
    cell = made_up.Cell("barriers", "mxnet", "async")
    invalid = made_up.result(cell, {"a": 1.0}, metrics={"added_wait_fraction": 0.25}, problems=("It cannot be.",))
    write_exercise(tmp_path, invalid.as_json(), {"failed": "it was | killed"})
    assert TABLES["exercises"](tmp_path).splitlines()[:4] == [
        "`barriers`: `added_wait_fraction`",
        "",
        "- MXNet: 0.25. INVALID: It cannot be.",
        "- PyTorch: not measured: it was | killed",
    ]


def test_an_exercises_answer_has_its_figure_its_sentences_and_what_would_change_it(tmp_path: Path) -> None:
    cell = made_up.Cell("barriers", "mxnet", "async")
    metrics = {"added_wait_fraction": 0.25}
    known = replace(
        made_up.result(cell, {"a": 1.0}, metrics=metrics), metric_intervals={"added_wait_fraction": (0.0, 1.0)}
    )
    answered = replace(known, answer=Answer(("It waited.", "For one."), "A second worker (--workers 2)."))
    before = replace(made_up.result(cell, {"a": 1.0}), explanation="It was old.", notes=("With a note.",))
    for torch, told in (
        (before.as_json(), ", `added_wait_fraction` 1: It was old. With a note."),
        ({"failed": "it was killed"}, ": not measured: it was killed"),
    ):
        write_exercise(tmp_path, answered.as_json(), torch)
        first, second, source = write_table("answer barriers", tmp_path).split("\n\n")
        assert first == (
            "**MXNet**, `added_wait_fraction` 0.25 (0.00–1.00): It waited. For one. "
            "What would change it: A second worker (--workers 2)."
        )
        assert second == f"**PyTorch**{told}"
        assert source.startswith("[exercises](")
    with pytest.raises(ValueError, match=r"unknown exercise 'overlap' \(known: barriers\)"):
        write_table("answer overlap", tmp_path)


def test_kinds_of_cells_that_were_not_compared_have_no_row(tmp_path: Path) -> None:
    kinds = [Rates("quiet", 5, 1000, 10, 990), Rates("noisy", 5, 0, 0, 0)]
    document = {"rates": [asdict(one) for one in kinds], "machine": made_up.MACHINE, "versions": {}}
    (tmp_path / "self-test.json").write_text(json.dumps(document))
    assert TABLES["wrong-verdicts"](tmp_path).splitlines()[2:4] == ["| quiet | 5 | 1000 | 1.0% | 99.0% |", ""]
