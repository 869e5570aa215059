"""The report as text: what stands where, for readers, for machines that read aloud, and against
hostile names.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, pairwise
from typing import NamedTuple

import pytest

from parallel_core.compare.analysis import analyse
from parallel_core.compare.answer_table import Screen, screen_of
from parallel_core.compare.plan import FIRST
from parallel_core.compare.results import Cell, CellResults, FailedRun
from parallel_core.compare.time_differences import PARTS
from parallel_core.measurement.task_graph import Task
from tests.parallel_core.compare.made_up import (
    NASTY,
    ONE,
    changed,
    comparison,
    every_chart,
    failed,
    measured,
    on_other_backend,
    parallel,
)
from tests.parallel_core.report.pages import Parsed, full_page, page_of, with_bare_times


@cache
def page() -> str:
    """Return the report with everything that a report can hold."""
    return full_page()


def section(name: str) -> str:
    """Return the part of the page that is of an experiment."""
    return page().partition(f'<section id="{name}"')[2].partition("</section>")[0]


@cache
def parsed() -> Parsed:
    """Return the elements of the page."""
    return Parsed(page())


def assert_in_order(text: str, parts: Sequence[str]) -> None:
    """Check that a text has these parts, the first of each in this order."""
    places = [text.index(part) for part in parts]
    assert places == sorted(places), parts


def test_the_answer_comes_first_and_the_summary_last() -> None:
    assert_in_order(page(), ["<h1", "chart-first", 'id="answer"', "<main>"])
    assert_in_order(page(), ['id="dispatch"', 'id="allreduce"', 'id="summary"'])


@pytest.mark.parametrize("name", ["parallel", "data-parallel", "async"])
def test_an_experiment_has_timelines_differences_and_folded_times(name: str) -> None:
    parts = ["<h2", "chart-timelines-", "table-differences-", "<details", "table-times-"]
    assert_in_order(section(name), parts)


def test_each_pair_of_sides_has_a_row_of_parts_and_their_sum() -> None:
    behind_title = section("parallel").partition('id="table-differences-parallel"')[2]
    table = behind_title.partition("</table>")[0]
    rows = re.findall('<tr><th scope="row">([^<]+)</th>((?:<td>[^<]*</td>)+)</tr>', table)
    assert len(rows) > 1
    for sides, values in rows:
        assert " against " in sides
        assert values.count("<td>") == len(PARTS) + 1


def test_without_bare_times_there_are_no_differences_and_a_sweep_has_curves_and_no_times() -> None:
    allreduce = section("allreduce")
    assert "table-differences-" not in allreduce
    assert "table-times-" not in allreduce
    assert_in_order(allreduce, ["chart-curves-", "table-curves-"])


THREE_FRAMEWORKS = comparison(
    *(measured(parallel(name), [1.0, 1.01, 0.99]) for name in ("mxnet", "torch", "third"))
)


class Shown(NamedTuple):
    """What the terminal shows of a comparison, and its page."""

    screen: Screen
    page: str


@pytest.fixture(
    scope="module",
    params=[every_chart(), THREE_FRAMEWORKS],
    ids=["every chart", "three frameworks"],
)
def shown(request: pytest.FixtureRequest) -> Shown:
    return Shown(screen_of(analyse(request.param)), page_of(request.param))


def test_the_answer_is_the_terminal_s_table(shown: Shown) -> None:
    screen = shown.screen
    answer = shown.page.partition('id="answer"')[2].partition("</table>")[0]
    titles = re.findall(r'<th scope="col">([^<]+)<', answer)
    assert titles == [column.title for column in screen.columns]
    rows = []
    for question, cells in re.findall(r'<tr><th scope="row">([^<]+)</th>(.*?)</tr>', answer):
        rows.append((question, tuple(re.findall("<td>([^<]+)</td>", cells))))
    assert rows == list(screen.rows)


def test_the_differences_are_those_of_the_terminal(shown: Shown) -> None:
    row = r'<tr><th scope="row">([^<]+)</th><td class="[\w ]+">([^<]+)</td><td>([^<]*)</td></tr>'
    differences = chain.from_iterable(shown.screen.differences.values())
    assert re.findall(row, shown.page) == [
        (
            f"{difference.cell.experiment}: {difference.case}",
            difference.in_words,
            difference.reasons_in_words,
        )
        for difference in differences
    ]


def test_the_title_and_the_columns_of_differences_name_all_frameworks() -> None:
    text = page_of(THREE_FRAMEWORKS)
    assert "<h1>How MXNet, PyTorch and third schedule the same work</h1>" in text
    columns = re.findall(r'<th scope="col">(\w+) against MXNet</th>', text)
    assert columns == ["PyTorch", "third"]


def test_tables_are_folded_but_for_the_answer_and_the_differences() -> None:
    visible = re.sub(r"<details>.*?</details>", "", page(), flags=re.DOTALL)
    assert "<table" in visible.partition("<nav")[0]
    tables = re.findall('id="table-([a-z]+)-', visible.partition("<nav")[2])
    assert set(tables) == {"differences"}
    assert visible.partition("<nav")[2].count("<table") == len(tables)


def test_unstable_cases_are_folded() -> None:
    (case,) = every_chart().cells[0].results[0].cases
    unstable = replace(case, seconds=(1.0, 2.0, 3.0))
    text = page_of(comparison(changed(measured(parallel("torch"), ONE), cases=(unstable,))))
    summary = "<summary>1 unstable or doubtful case</summary>"
    folded = text.partition(summary)[2].partition("</details>")[0]
    assert "the standard deviation is 42 % of the mean" in folded


def test_the_page_is_small_and_loads_nothing() -> None:
    assert len(page().encode()) < 2_000_000
    assert all(address.startswith(("#", "data:")) for address in parsed().addresses)


def test_links_and_labels_name_what_is_on_the_page_once() -> None:
    all_attributes = [attributes for _, attributes in parsed().elements]
    names = Counter(attributes["id"] for attributes in all_attributes if "id" in attributes)
    assert [name for name, count in names.items() if count > 1] == []
    label_names = {attributes.get("aria-labelledby") for attributes in all_attributes} - {None}
    link_targets = set(re.findall(r'href="#([^"]+)"', page()))
    assert label_names
    assert label_names | link_targets <= set(names)


def test_headings_are_in_order_and_landmarks_stand_once() -> None:
    levels = [int(tag[1]) for tag in parsed().tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    for landmark in ("header", "nav", "main"):
        assert parsed().tags.count(landmark) == 1, landmark


def test_drawings_are_described_groups() -> None:
    drawings = [attributes for tag, attributes in parsed().elements if tag == "svg"]
    assert drawings
    for attributes in drawings:
        assert attributes.get("aria-label")
        # Their words are read aloud, too: they are groups and no images.
        assert attributes.get("role") == "group"


def test_no_name_and_nothing_that_processes_say_becomes_markup() -> None:
    compared = every_chart()
    cells = tuple(with_bare_times(with_nasty_names(cell)) for cell in compared.cells)
    nasty_page = page_of(replace(compared, command=NASTY, cells=cells))
    for text in (page(), nasty_page):
        assert NASTY not in text
        assert Parsed(text).tags.count("script") == 1
    assert "&lt;script&gt;alert(" in section("parallel")
    assert "&lt;script&gt;alert(" in section("data-parallel")
    text_before = {
        "a library": "</b> ",
        "a case": '<tr><th scope="row">',
        "a curve's mark": "<title>",
        "a parameter": "the same work:\n",
        "the command": "Asked: <code>",
        "a scheduler": '<td class="prose">',
    }
    for named, before in text_before.items():
        assert f"{before}&lt;script" in nasty_page, named


def with_nasty_names(cell: CellResults) -> CellResults:
    """Return a cell's results in which everything that has a name has a nasty one."""
    described = {
        "scheduler": NASTY,
        "settings": {NASTY: NASTY},
        "variants": [NASTY],
        "kernels": [{"library": NASTY, "version": None, "instruction_set": NASTY, "threads": 1}],
        "product": {"size": 512, "gflop_per_s": 48.7},
    }
    results = []
    for result in cell.results:
        series = dict(result.series)
        if "bytes" in series:
            series[f"algbw_gb_per_s {NASTY}"] = (1.0, 2.0)
        nasty_case = replace(result.cases[0], name=NASTY, parts=())
        nasty_result = replace(
            result,
            parameters={NASTY: NASTY},
            backend={**result.backend, **described},
            cases=(*result.cases, nasty_case),
            explanation=NASTY,
            series=series,
        )
        results.append(nasty_result)
    return replace(cell, results=tuple(results))


@pytest.mark.parametrize(
    ("turn", "rounds"), [(FIRST - 1, "2 of 5 rounds, each cell"), (2, "3 of 5 rounds, each cell")]
)
def test_rounds_are_those_that_were_run(turn: int, rounds: str) -> None:
    # A process before the first round, which older comparisons tell of, is no round.
    failures = (FailedRun(turn, "crash", refused=False),)
    cell = replace(measured(parallel("torch"), (1.0, 1.2)), failures=failures)
    assert rounds in page_of(comparison(cell))


def test_losses_may_be_zero() -> None:
    def trained(backend: str, last_loss: float) -> CellResults:
        series = {"loss": (1.0, last_loss), "test_accuracy": (1.0,)}
        return changed(measured(Cell("data-parallel", backend, "async"), ONE), series=series)

    mxnet = trained("mxnet", 0.0)
    different = page_of(comparison(mxnet, trained("torch", 0.5)))
    assert "those of all batches by 1:" in different
    equal = page_of(comparison(mxnet, trained("torch", 0.0)))
    assert "those of all batches by 0:" in equal


def test_nothing_measured_is_a_page_too() -> None:
    text = page_of(comparison(failed(parallel("mxnet"))))
    assert "torch is not installed" in text
    assert 'id="chart-' not in text


def test_variants_are_a_column_where_there_are_any() -> None:
    with_variant = on_other_backend(measured(parallel("torch"), ONE), variants=["bulk-on"])
    text = page_of(comparison(with_variant))
    assert "<th>variants</th>" not in page()
    assert text.count("<th>variants</th>") == 1
    assert text.count("<td>bulk-on</td>") == 1


def test_graphs_are_pictures_with_a_description() -> None:
    tasks = (Task(NASTY, "cpu:1", "compute", (), 0.1), Task("b", "cpu:2", "copy", (0,), 0.2))
    cells = [
        changed(measured(Cell("graph", *side), ONE), tasks=tasks)
        for side in (("a", "async"), ("a", "sync"), ("b", "async"))
    ]
    text = page_of(comparison(*cells))
    labels = re.findall('aria-label="(The graph of tasks that [^"]+)"', text)
    assert labels == [f"The graph of tasks that {name} recorded" for name in ("a", "b")]
    assert NASTY not in text
    assert text.count(">&lt;script&gt;alert(") >= 2
