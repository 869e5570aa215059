"""No table of measured numbers is written by hand, and none differs from the file that it comes
from.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tables.__main__ import BLOCK, main, pages, refill, write_table, written
from benchmarks.tables.sources import source_of, unmarked
from parallel_core.measurement.result import Counted, Note, Result
from parallel_core.system.files import write_json
from tests.parallel_core.compare import made_up
from tests.parallel_core.compare.test_time_differences import scaled

MEASURED = re.compile(r"\d\s?(ns|μs|ms|s|min|%|×|images/s|[GM]B/s|GFLOP/s)(?=[\s,.;:)]|$)")
LINES = st.text("ab|-<! \n", max_size=30)
NAMES = st.from_regex("[a-z-]{1,8}( [a-z-]{1,8}){0,2}", fullmatch=True)
FOLDER = Path("some/folder")
PAGE = Path("README.md")


def block(name: str, body: str) -> str:
    """Return a block of a page that is filled with a table."""
    return f"<!-- table: {name} from some/folder -->\n{body}\n<!-- end -->"


def table_of(name: str, folder: Path) -> str:
    """Return what stands for a table."""
    return f"| {name} in {folder} |"


@given(blocks=st.lists(st.tuples(LINES, NAMES, LINES), max_size=4), after=LINES)
def test_every_block_is_filled_once_and_for_all(
    blocks: list[tuple[str, str, str]], after: str
) -> None:
    text = expected = ""
    for before, name, body in blocks:
        text += f"{before}\n{block(name, body)}\n"
        table = f"\n{table_of(name, FOLDER)}\n"
        expected += f"{before}\n{block(name, table)}\n"
    filled = refill(text + after, PAGE, table_of)
    assert filled == expected + after
    assert refill(filled, PAGE, table_of) == filled


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
    ids=["without-end", "without-folder", "indented", "nested"],
)
def test_a_block_that_would_be_passed_over_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        refill(text, PAGE, table_of)


@pytest.mark.long
def test_every_table_is_as_its_file_says(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    differing = [
        str(path) for path, text in written() if not path.exists() or path.read_text() != text
    ]
    assert differing == [], "python -m benchmarks.tables"


def test_no_page_hides_that_a_figure_is_of_an_older_method(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    for page in pages():
        assert [*unmarked(page.read_text(), page)] == [], page


@pytest.mark.parametrize(("number", "marked"), [(1, True), (2, False), (3, False)])
def test_what_an_older_method_measured_is_marked(number: int, marked: bool) -> None:
    machine = {"processor": "Z80", "cores": 1, "utc": "2026-11-26T10:00"}
    document = {"machine": machine, "method": {"number": number}}
    (source,) = source_of(FOLDER, {"abstraction.json": document}).splitlines()[1:]
    assert ("with the method of that day" in source) == marked


@pytest.mark.long
def test_every_table_with_measured_numbers_is_in_a_block(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    assert MEASURED.search("| 4 KiB | 2.4 ms (1.3–3.6) | 2 % |")
    for path in pages():
        lines_by_hand = BLOCK.sub("", path.read_text()).splitlines()
        rows_by_hand = [line for line in lines_by_hand if line.startswith("|")]
        assert [row for row in rows_by_hand if MEASURED.search(row)] == [], path


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
    """Run the command, and return its status and what it printed."""
    done = CliRunner().invoke(main, arguments)
    return done.exit_code, done.output


@pytest.mark.usefixtures("copied")
def test_pages_of_the_site_are_filled_too() -> None:
    for page in ("docs/explanation/one.md", "docs/_build/one.md", "docs/.kept/one.md"):
        Path(page).parent.mkdir(parents=True)
        Path(page).touch()
    assert [str(path) for path in pages()] == ["README.md", "docs/explanation/one.md"]


def test_a_table_that_differs_from_its_file_is_found_and_filled_anew(copied: Path) -> None:
    status, output = run("--check")
    assert status == 1
    assert "README.md differs from its results" in output
    assert f"{copied}/processes.md differs" in output
    assert "| 4 KiB |" not in Path("README.md").read_text()
    status, _ = run()
    assert status == 0
    assert run("--check") == (0, "")
    text = Path("README.md").read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("\nAfter.\n")
    assert "| 4 KiB | 2.42 ms (1.33–3.61) | 2 % |" in text
    assert "Measured on AMD EPYC, 2 cores, 2026-11-22: [processes]" in text


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(
    ("block_begin", "message"),
    [
        (
            "<!-- table: what from somewhere -->",
            "unknown table 'what' (known: first-run, ",
        ),
        (
            "<!-- table: processes from nowhere -->",
            "needs nowhere/processes.json, which is not there: measure it",
        ),
        (
            "<!-- table: processes of what from nowhere -->",
            "'processes of what' has not the words that 'processes'",
        ),
    ],
    ids=["unknown-table", "no-results", "unknown-words"],
)
def test_a_table_that_cannot_be_written_is_one_line(block_begin: str, message: str) -> None:
    Path("README.md").write_text(f"{block_begin}\n<!-- end -->\n")
    status, output = run()
    (line,) = output.splitlines()
    assert status == 1
    assert message in line


BARRIERS = made_up.result(
    made_up.Cell("barriers", "mxnet", "async"),
    {"a": 1.0},
    metrics={"added_wait_fraction": 0.25},
)
"""A result with a figure that has no bounds."""


def write_answers(folder: Path, mxnet: Result, torch: dict[str, Any]) -> None:
    """Write what two frameworks answered to an exercise into a folder of results."""
    results = {"mxnet": mxnet.as_json(), "torch": torch}
    answers = {"machine": made_up.MACHINE, "results": results}
    path = folder / "experiments" / "exercises.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"runs": {"barriers": answers}}))


@pytest.mark.parametrize(
    ("torch", "torch_figure", "torch_problem"),
    [
        ({"failed": "it was killed"}, "", "not measured: it was killed"),
        (
            replace(BARRIERS, problems=(Note(None, "It cannot be"),)).as_json(),
            "0.25",
            "INVALID: It cannot be.",
        ),
    ],
    ids=["failed", "invalid"],
)
def test_an_exercise_s_answer_has_its_counts_its_figures_and_what_failed(
    torch: dict[str, Any], torch_figure: str, torch_problem: str, tmp_path: Path
) -> None:
    with_bounds_and_count = replace(
        BARRIERS,
        metric_intervals={"added_wait_fraction": (0.0, 1.0)},
        counts={"left_after_wait": Counted(64, 1064, "a profiler", (64,))},
    )
    write_answers(tmp_path, with_bounds_and_count, torch)
    assert write_table("answer barriers", tmp_path).splitlines()[:5] == [
        "|  | MXNet | PyTorch |",
        "| --- | --- | --- |",
        "| `left_after_wait` | 64 of 1,064 |  |",
        f"| `added_wait_fraction` | 0.25 (0.00–1.00) | {torch_figure} |",
        f"|  |  | {torch_problem} |",
    ]


def test_an_exercise_without_an_answer_is_refused(tmp_path: Path) -> None:
    write_answers(tmp_path, BARRIERS, BARRIERS.as_json())
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
        document = {"machine": made_up.MACHINE, "trials": {"0": trials, "1": trials[:1]}}
        path.write_text(json.dumps(document))
    _, _, row, *_ = write_table("planted-faults", tmp_path).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    size = "1.50 (1.50–1.50)"
    assert cells[2:] == ["1 of 2", size, "1 of 1", "2 of 2", size, "1 of 1"]


@pytest.mark.parametrize("names", [("mxnet", "torch", "jax"), ("torch", "jax")], ids=["all", "two"])
def test_a_comparison_s_table_has_all_frameworks(tmp_path: Path, names: tuple[str, ...]) -> None:
    cells = []
    for seconds, name in enumerate(names, 1):
        cells.append(scaled(made_up.parallel(name, "async"), float(seconds), 0.5))
        cells.append(scaled(made_up.parallel(name, "sync"), 2.0 * seconds, 0.5))
    write_json(tmp_path / "comparison.json", made_up.comparison(*cells).as_json())
    header, _, first_row, *_ = write_table("comparison-answer", tmp_path).splitlines()
    # A column for each framework with queues, and one for all of them without.
    assert header.count(" | ") == len(names) + 1
    *_, without_queues = first_row.split(" | ")
    assert without_queues.count(" / ") == len(names) - 1
