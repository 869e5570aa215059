"""A saved comparison survives its file, is read whole or refused in one line, and says of no file
where it is.
"""

import io
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, reduce
from itertools import chain
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parallel_core.compare.analysis import analyse
from parallel_core.compare.cell_changes import compare_with_old
from parallel_core.compare.results import CellResults, Comparison
from parallel_core.compare.storage import claimed_folder, read_comparison
from parallel_core.report.pyperf_export import suites
from parallel_core.system.errors import RequestError
from parallel_core.terminal.comparison import show_comparison, show_difference
from parallel_core.terminal.console import terminal_console
from tests.conftest import RunProgram
from tests.parallel_core.command_line.refused import assert_refused
from tests.parallel_core.compare.made_up import (
    changed,
    comparison,
    every_chart,
    failed,
    measured,
    parallel,
)
from tests.parallel_core.compare.test_time_differences import PARTS, made_of
from tests.parallel_core.terminal.printed import controls
from tests.tree import ROOT

Place = tuple[str | int, ...]
TORCH = parallel("torch")
ELSEWHERE = ("../../elsewhere", "/{}/elsewhere")
NAMES = (*ELSEWHERE, "x/../../../elsewhere", "..", ".", "x/y", "x\0y", "x\n", "x" * 300, "-")
RESULT: Place = ("cells", 0, "results", 0)
REMOVED = "removed"
"""Stands for what is not there."""


def written(found: Comparison, *changes: tuple[Place, Any]) -> Any:
    """Return a comparison as its file has it, with other values at some places."""
    read = json.loads(json.dumps(found.as_json()))
    for (*above, last), value in changes:
        inside = reduce(getitem, above, read)
        if value == REMOVED:
            del inside[last]
        else:
            inside[last] = value
    return read


def test_a_comparison_survives_its_file() -> None:
    bands = {"parallel_speedup": "parallel", "other": None}
    whole = changed(made_of(parallel("mxnet"), 1.0, PARTS), bands=bands)
    # Parts that are no cases are passed over.
    cases = tuple(replace(case, parts=("nothing",)) for case in whole.results[0].cases)
    saved = comparison(changed(whole, cases=cases), failed(TORCH), CellResults(parallel("numpy")))
    assert Comparison.from_json(written(saved)) == saved


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cases", 0, "seconds"), []),
        (("cases", 0, "seconds"), [0.0]),
        (("cases", 0, "seconds"), [None]),
        (("cases", 0, "dispatch_seconds"), [-1.0]),
        (("cases", 0, "dispatch_seconds"), []),
        (("cases", 0, "operations_seconds"), [None]),
        (("cases", 0, "repeats"), 0),
        (("cases", 0, "share"), 0.0),
        (("cases", 0, "warmup_seconds"), [-1.0]),
        (("metrics", "parallel_speedup"), 10**30),
        (("tasks",), [{"name": "x", "device": "cpu:1", "kind": "compute", "after": [-1]}]),
        (("schema",), 3),
        (("backend", "devices"), REMOVED),
        (("backend", "devices"), []),
        (("environment", "python"), REMOVED),
    ],
)
def test_a_result_that_cannot_be_is_refused(place: Place, value: Any) -> None:
    document = written(comparison(measured(TORCH, (1.0, 1.1))), ((*RESULT, *place), value))
    with pytest.raises(ValueError, match=r"\w+"):
        Comparison.from_json(document)


def saved(folder: Path, name: str, *places: Place) -> Path:
    """Save a comparison in a folder, with another name at some places."""
    folder.mkdir()
    changes = ((place, name.format(folder.parent)) for place in places)
    document = written(comparison(measured(TORCH, (1.0,))), *changes)
    (folder / "comparison.json").write_text(json.dumps(document))
    return folder


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name)[:20])
def test_a_name_that_no_cell_or_device_can_have_is_refused(
    program: RunProgram, tmp_path: Path, name: str
) -> None:
    cell: Place = ("cells", 0)
    # Both agree, so that nothing but the name is wrong.
    both: list[tuple[Place, ...]] = [
        ((*cell, "experiment"), (*RESULT, "experiment")),
        ((*cell, "backend"), (*RESULT, "backend", "name")),
        ((*cell, "engine"), (*RESULT, "backend", "engine")),
    ]
    alone = [(one,) for one in (("utc",), (*RESULT, "backend", "devices", 0), *chain(*both))]
    for number, places in enumerate((*both, *alone)):
        folder = saved(tmp_path / str(number), name, *places)
        assert_refused(program("report", str(folder)))
        assert files_in(folder) == {"comparison.json"}
    assert not list(tmp_path.glob("elsewhere*"))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_no_other_name_in_it_becomes_a_path(program: RunProgram, tmp_path: Path, name: str) -> None:
    places = (
        ("command",),
        (*RESULT, "backend", "version"),
        (*RESULT, "cases", 0, "name"),
        (*RESULT, "data"),
    )
    folder = saved(tmp_path / "saved", name, *places)
    assert program("report", str(folder)).returncode == 0
    assert files_in(tmp_path) == {
        "saved/comparison.json",
        "saved/report.html",
        "saved/pyperf/torch-async.json",
    }


@cache
def whole() -> Comparison:
    kept = read_comparison(ROOT / "benchmarks/results/epyc-avx512-2-cores")
    kept_cells = (*kept.of("overlap")[:2], *kept.of("data-parallel")[:1])
    made_up_cells = (
        cell
        for cell in every_chart().cells
        if str(cell.cell) in ("allreduce on torch async", "parallel on numpy sync")
    )
    return comparison(
        *(replace(cell, results=cell.results[:2]) for cell in kept_cells), *made_up_cells
    )


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(
        [
            10**30,
            10**400,
            2**63,
            1e300,
            -1e300,
            1e-300,
            0.0,
            "",
            "\0",
            "[bold]",
            "[/]\x1b[2J",
            "2026-13-41T99:99:99",
        ]
    ),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
    st.sampled_from([{}, [], [None], {"a": 1}]),
)


def places(value: Any, *above: str | int) -> Iterator[Place]:
    """Iterate over all places in a document, by their keys."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, inside in value.items():
            yield (*above, key)
            yield from places(inside, *above, key)


def drawn_place() -> st.SearchStrategy[Place]:
    """Draw a kind of place, and then one of it, so that what stands there once is drawn as
    often.
    """
    kinds = defaultdict(list)
    for place in places(written(whole())):
        kind = tuple(key for key in place if isinstance(key, str))
        kinds[kind].append(place)
    return st.sampled_from([*kinds.values()]).flatmap(st.sampled_from)


@given(st.deferred(drawn_place), st.just(REMOVED) | ODD)
@example((*RESULT, "backend", "version"), 10**400)
@example(("utc",), "2026-13-41T99:99:99")
@example((*RESULT, "backend", "kernels"), REMOVED)
@example((*RESULT, "cases", 0), REMOVED)
def test_what_was_changed_is_a_comparison_or_refused_in_one_line(
    tmp_path: Path, place: Place, value: Any
) -> None:
    """What is read can be analysed, shown, exported and compared: only reading looks at its
    form.
    """
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps(written(whole(), (place, value))))
    try:
        found = read_comparison(path)
    except RequestError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    analysis = analyse(found)
    for suite in suites(found).values():
        suite.dump(io.StringIO())
    screen = io.StringIO()
    show_comparison(analysis, terminal_console(file=screen))
    show_difference(compare_with_old(whole(), found), terminal_console(file=screen))
    assert controls(screen.getvalue()) == set()


def test_a_report_that_cannot_be_written_is_found_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "report.html").symlink_to("/nowhere/report.html")
    claim = claimed_folder(tmp_path, with_traces=True)
    with pytest.raises(RequestError, match=r"cannot write to .*/report\.html: "), claim:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


CLAIMING = """
import sys, time
from pathlib import Path
from parallel_core.compare.storage import claimed_folder

with claimed_folder(Path(sys.argv[1]), with_traces=False):
    print("claimed", flush=True)
    time.sleep(1000)
"""


def test_two_comparisons_never_write_to_one_folder_and_a_killed_one_frees_it(
    program: RunProgram, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    command = [sys.executable, "-c", CLAIMING, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "claimed\n"
        asked = "compare building-blocks --backends numpy --out"
        done = program(*asked.split(), str(folder))
        other.kill()
    assert_refused(done, str(folder))
    assert list(folder.iterdir()) == []
    with claimed_folder(folder, with_traces=True):
        assert [inside.name for inside in folder.iterdir()] == ["traces"]
