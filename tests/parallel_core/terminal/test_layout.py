"""What is printed fits the terminal: no number, unit or name is lost or parted, however narrow it
is.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.style import Style
from rich.table import Column, Table

import backends
from backends.installation.frameworks import Diagnosis
from parallel_core.command_line.doctor import show_examination
from parallel_core.compare.analysis import analyse
from parallel_core.compare.cell_changes import compare_with_old
from parallel_core.compare.storage import read_comparison
from parallel_core.doctor import Finding
from parallel_core.doctor.examination import Examination
from parallel_core.experiments import EXPERIMENTS
from parallel_core.terminal.comparison import NARROW, WIDE, show_comparison, show_difference
from parallel_core.terminal.console import ASIDE, BAD, DOUBTFUL, GOOD
from parallel_core.terminal.explanation import show_catalogue
from parallel_core.terminal.layout import show_sentence, show_table
from parallel_core.terminal.result import show
from parallel_core.terminal.timeline import show_figures
from parallel_core.terminal.trace import show_details, show_ranks
from parallel_core.traces.cases import timeline_figures
from parallel_core.traces.ranks import summary_of
from parallel_core.traces.ranks.reading import read_ranks
from parallel_core.traces.trace_files import read_timeline
from tests.parallel_core.experiments.small import small
from tests.parallel_core.terminal import printed as printing
from tests.tree import ROOT

SAVED = ROOT / "benchmarks/results/epyc-2-cores"
TRACES = ROOT / "tests/parallel_core/traces/stored"
WIDEST = 200
WIDTHS = ((60, WIDEST), (80, WIDEST))
"""Columns, and those of the terminal that all is held against."""
QUANTITY = re.compile(
    r"[±−-]? ?\d(?:[\d,.]*\d)?(?:e[−+-]?\d+)?(?: (?:[nμm]?s|[kMG]B|[KMG]iB|GB/s|×)(?![\w/])|%)?"
)
BOX = re.compile(r"[\u2500-\u257f]+")

Show = Callable[[Console], None]


def printed(show: Show, width: int) -> str:
    """Return what is printed at a width, without the lines of tables."""
    return BOX.sub(" ", printing.printed(show, width=width))


def words(text: str) -> set[str]:
    """Return the words, but for what a row that is printed as lines does without: the headings of
    names and values.
    """
    return {word.strip(";:,") for word in text.split()} - {"metric", "value", ""}


def quantities(text: str) -> set[str]:
    """Return the numbers with their signs and units, each from a single line."""
    lines = text.splitlines()
    matches = chain.from_iterable(QUANTITY.findall(line) for line in lines)
    return {" ".join(match.split()) for match in matches}


def assert_nothing_is_lost(show: Show, references: Iterable[tuple[int, int]] = WIDTHS) -> None:
    """Check that at each first width all is printed that is printed at the second one."""
    for width, reference_width in references:
        text, reference = printed(show, width), printed(show, reference_width)
        assert quantities(reference) <= quantities(text)
        assert words(reference) <= words(text)
        assert "…" not in words(text) - words(reference)
        for line in text.splitlines():
            # A word that is longer than the terminal stays in one piece.
            longest_word = max(words(line), key=len, default="")
            assert len(line) <= width or len(longest_word) > width - 8


@pytest.mark.parametrize("name", ["cost-model", "parallel", "allreduce", "data-parallel"])
def test_results_of_each_kind_of_table_and_once_where_the_data_came_from(name: str) -> None:
    result = EXPERIMENTS[name].run(backends.load("numpy", 2, "cpu", None, 1), **small(name))
    assert_nothing_is_lost(partial(show, result))
    assert printed(partial(show, result), 80).count("data: ") == (name == "data-parallel")


def test_comparisons_and_their_differences() -> None:
    saved = read_comparison(SAVED)
    show_saved = partial(show_comparison, analyse(saved))
    # Between these widths figures have no bounds.
    assert 60 < NARROW <= 80 < WIDE
    assert_nothing_is_lost(show_saved, ((60, WIDEST), (80, WIDE - 1), (WIDE, WIDEST)))
    assert printed(show_saved, 80).count("data: ") == 1
    assert_nothing_is_lost(partial(show_difference, compare_with_old(saved, saved)))


def test_traces_and_ranks() -> None:
    timeline = read_timeline(TRACES / "one_gpu/h100_launched_before.json.gz")
    (case,) = timeline_figures(timeline)
    assert_nothing_is_lost(partial(show_figures, (case,)))
    assert_nothing_is_lost(partial(show_details, case, ()))
    ranks = summary_of(read_ranks(sorted((TRACES / "two_gpus").iterdir())))
    assert_nothing_is_lost(partial(show_ranks, ranks))


def test_what_doctor_finds() -> None:
    path = "/home/someone/environments/of/some/projects/parallel-core/bin/python"
    torch = Finding("torch", "fine", f"2.13.0; works with queues and without queues in {path}")
    busy = Diagnosis("Other programs use 45 % of the cores now")
    load = Finding("other work", "doubtful", "busy", busy)
    sections = {"Frameworks": (torch,), "Devices": (load,)}
    examination = Examination(("MXNet", "PyTorch (in .venv-torch)"), sections)
    assert_nothing_is_lost(partial(show_examination, examination, everything=True))


CELLS = st.text(st.sampled_from("ab1 [±"), max_size=12).map(str.strip)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4),
    width=st.integers(12, 60),
)
def test_any_table_keeps_its_words(rows: list[tuple[str, str, str]], width: int) -> None:
    def show_rows(console: Console) -> None:
        table = Table("name", Column("first heading", justify="right"), "second")
        for row in rows:
            table.add_row(*row)
        show_table(table, console)

    text_of_cells = " ".join(chain.from_iterable(rows))
    assert words(text_of_cells) <= words(printed(show_rows, width))


PARTS = st.sampled_from(["5.0 ms", "± 3%", "(1 … 2)", "x = 4", "2 ×", "word", "some-path/of"])


@given(st.lists(PARTS, min_size=1))
@example(["5.0 ms", "word", "± 3%", "word"])
def test_no_line_of_a_sentence_ends_within_a_quantity(parts: list[str]) -> None:
    sentence = ", ".join(parts)
    lines = printed(partial(show_sentence, sentence, bullet="· "), 20).splitlines()
    assert all(len(line) <= 20 for line in lines)
    assert " ".join(line.strip() for line in lines) == f"· {sentence}"
    for part in parts:
        assert any(part in line for line in lines)


def test_the_catalogue_fits_a_screen_with_a_line_for_each_experiment() -> None:
    experiments = EXPERIMENTS.values()
    lines = printed(partial(show_catalogue, experiments, ("numpy", "torch")), 80).splitlines()
    assert len(lines) == len(experiments) + 5
    assert all(len(experiment.question) <= 45 for experiment in experiments)


@pytest.mark.parametrize("colour", [ASIDE, BAD, DOUBTFUL, GOOD])
def test_colours_are_the_terminal_s_own(colour: str) -> None:
    style = Style.parse(colour)
    if not style.dim:
        assert style.color is not None
        assert style.color.is_default is False
        assert style.color.number in range(8)
