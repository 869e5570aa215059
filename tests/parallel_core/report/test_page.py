"""The report as text: what stands where, for readers, for machines that read aloud, and against
hostile names.
"""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.cells import Cell, CellResults, FailedRun
from parallel_core.comparison.plan import FIRST
from parallel_core.comparison.screen import screen_of
from parallel_core.measurement.task_graph import Task
from tests.parallel_core.comparison.made_up import (
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

EXPERIMENTS = ("parallel", "data-parallel", "async", "allreduce")


@cache
def page() -> str:
    return full_page()


def section(name: str) -> str:
    return page().partition(f'<section id="{name}"')[2].partition("</section>")[0]


@cache
def parsed() -> Parsed:
    return Parsed(page())


def with_first(change: Any) -> str:
    """Return the page of every chart whose first cell was changed."""
    first, *others = every_chart().cells
    return page_of(comparison(change(first), *others))


def test_the_answer_comes_first_then_timelines_differences_figures_and_folded_tables() -> None:
    assert (
        page().index("<h1")
        < page().index("chart-first")
        < page().index('id="answer"')
        < page().index("<main>")
    )
    order = [
        "<h2",
        "chart-timelines-",
        "chart-differences-",
        "chart-figure-",
        "<details",
        "chart-times-",
    ]
    for name in EXPERIMENTS[:3]:
        places = [section(name).index(part) for part in order]
        assert places == sorted(places), name
    chart = section("parallel").partition('id="chart-differences-parallel"')[2].partition("<h3>")[0]
    assert (
        len(re.findall(">together</text>", chart))
        == len(re.findall(" against [^<]+</text>", chart))
        > 1
    )
    # Without bare times there are no parts of differences, and a sweep's curves stand in place of
    # its times.
    assert "chart-differences-" not in section("allreduce")
    assert section("allreduce").index("chart-figure-") < section("allreduce").index("chart-curves-")
    assert "chart-times-" not in section("allreduce")
    assert (
        page().index('id="dispatch"')
        < page().index('id="allreduce"')
        < page().index('id="summary"')
    )


def test_the_answer_is_the_terminal_s_table() -> None:
    three = comparison(
        *(measured(parallel(name), [1.0, 1.01, 0.99]) for name in ("mxnet", "torch", "third"))
    )
    for compared in (every_chart(), three):
        screen, whole = screen_of(analyse(compared)), page_of(compared)
        top = whole.partition('id="answer"')[2].partition("</table>")[0]
        assert re.findall(r'<th scope="col">([^<]+)<', top) == [
            column.title for column in screen.columns
        ]
        rows = re.findall(r'<tr><th scope="row">([^<]+)</th>(.*?)</tr>', top)
        assert [
            (question, (*re.findall("<td>([^<]+)</td>", cells),)) for question, cells in rows
        ] == [*screen.rows]
        row = (
            r'<tr><th scope="row">([^<]+)</th><td class="[\w ]+">([^<]+)</td><td>([^<]*)</td></tr>'
        )
        assert re.findall(row, whole) == [
            (f"{one.cell.experiment}: {one.case}", one.in_words, one.reasons_in_words)
            for rows in screen.differences.values()
            for one in rows
        ]
    assert "<h1>How MXNet, PyTorch and third schedule the same work</h1>" in whole
    assert re.findall(r'<th scope="col">(\w+) against MXNet</th>', whole) == ["PyTorch", "third"]


def test_unstable_cases_and_tables_are_folded() -> None:
    visible = re.sub(r"<details>.*?</details>", "", page(), flags=re.DOTALL)
    # Those of the answer are not.
    assert "<table" in page().partition("<nav")[2]
    assert "<table" not in visible.partition("<nav")[2]
    (case,) = every_chart().cells[0].results[0].cases
    folded = with_first(lambda cell: changed(cell, cases=(replace(case, seconds=(1.0, 2.0, 3.0)),)))
    reason = folded.partition("<summary>1 unstable or doubtful case</summary>")[2].partition(
        "</details>"
    )[0]
    assert "the standard deviation is 43 % of the mean" in reason


def test_the_page_is_small_loads_nothing_and_its_links_and_labels_name_what_is_on_it_once() -> None:
    assert len(page().encode()) < 2_000_000
    assert all(address.startswith(("#", "data:")) for address in parsed().addresses)
    names = Counter(attributes["id"] for _, attributes in parsed().elements if "id" in attributes)
    assert {name for name, count in names.items() if count > 1} == set()
    wanted = [of["aria-labelledby"] for _, of in parsed().elements if "aria-labelledby" in of]
    assert {*wanted, *re.findall(r'href="#([^"]+)"', page())} <= set(names)


def test_headings_are_in_order_landmarks_stand_once_and_drawings_are_described() -> None:
    levels = [int(tag[1]) for tag in parsed().tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    tags = Counter(parsed().tags)
    assert [tags[name] for name in ("header", "nav", "main")] == [1, 1, 1]
    # Their words are read aloud, too: they are groups and no images.
    drawings = [one for tag, one in parsed().elements if tag == "svg"]
    assert drawings
    assert all(one.get("aria-label") and one.get("role") == "group" for one in drawings)


def test_no_name_and_nothing_that_processes_say_becomes_markup() -> None:
    compared = every_chart()
    cells = (with_bare_times(with_nasty_names(one)) for one in compared.cells)
    text = page_of(replace(compared, command=NASTY, cells=tuple(cells)))
    for whole in (page(), text):
        assert NASTY not in whole
        assert Parsed(whole).tags.count("script") == 1
    assert "&lt;script&gt;alert(" in section("parallel")
    assert "&lt;script&gt;alert(" in section("data-parallel")
    # A library, a case, a curve's mark, a parameter, the command, a scheduler.
    for before in (
        "</b> ",
        'class="bold">',
        "<title>",
        "the same work:\n",
        "Asked: <code>",
        '<td class="prose">',
    ):
        assert f"{before}&lt;script" in text, before


def with_nasty_names(cell: CellResults) -> CellResults:
    nasty = {
        "scheduler": NASTY,
        "settings": {NASTY: NASTY},
        "variants": [NASTY],
        "kernels": [{"library": NASTY, "version": None, "instruction_set": NASTY, "threads": 1}],
        "product": {"size": 512, "gflop_per_s": 48.7},
    }
    results = (
        replace(
            one,
            parameters={NASTY: NASTY},
            backend={**one.backend, **nasty},
            cases=(*one.cases, replace(one.cases[0], name=NASTY, parts=())),
            explanation=NASTY,
            series=one.series
            | ({f"algbw_gb_per_s {NASTY}": (1.0, 2.0)} if "bytes" in one.series else {}),
        )
        for one in cell.results
    )
    return replace(cell, results=tuple(results))


@pytest.mark.parametrize(
    ("turn", "told"), [(FIRST - 1, "2 of 5 rounds, each cell"), (2, "3 of 5 rounds, each cell")]
)
def test_rounds_are_those_that_were_run(turn: int, told: str) -> None:
    # A process before the first round, which older comparisons tell of, is no round.
    failures = (FailedRun(turn, "crash", refused=False),)
    assert told in page_of(
        comparison(replace(measured(parallel("torch"), (1.0, 1.2)), failures=failures))
    )


def test_losses_may_be_zero() -> None:
    def trained(name: str, last: float) -> CellResults:
        series = {"loss": (1.0, last), "test_accuracy": (1.0,)}
        return changed(measured(Cell("data-parallel", name, "async"), ONE), series=series)

    first = trained("mxnet", 0.0)
    assert "those of all batches by 1:" in page_of(comparison(first, trained("torch", 0.5)))
    assert "those of all batches by 0:" in page_of(comparison(first, trained("torch", 0.0)))


def test_nothing_measured_is_a_page_too() -> None:
    text = page_of(comparison(failed(parallel("mxnet"))))
    assert "torch is not installed" in text
    assert 'id="chart-' not in text


def test_variants_are_a_column_where_there_are_any() -> None:
    text = with_first(lambda cell: on_other_backend(cell, variants=["bulk-on"]))
    assert "<th>variants</th>" not in page()
    assert text.count("<th>variants</th>") == text.count("<td>bulk-on</td>") == 1


def test_graphs_are_pictures_with_a_description() -> None:
    tasks = (Task(NASTY, "cpu:1", "compute", (), 0.1), Task("b", "cpu:2", "copy", (0,), 0.2))
    cells = (
        measured(Cell("graph", *side), ONE)
        for side in (("a", "async"), ("a", "sync"), ("b", "async"))
    )
    text = page_of(
        comparison(*(changed(cell, tasks=tasks, parameters={"of": "a program"}) for cell in cells))
    )
    labels = re.findall('aria-label="(The graph of tasks that [^"]+)"', text)
    assert labels == [f"The graph of tasks that {name} recorded" for name in ("a", "b")]
    assert NASTY not in text
    assert text.count(">&lt;script&gt;alert(") >= 2
