"""What a trace lacks is said, and a host's share is not offered in a device's place."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.figures import figures_of_level
from parallel_core.traces.ranks import RankFigures, summary_of
from parallel_core.traces.ranks.reading import read_ranks
from parallel_core.traces.trace_files import read_timeline
from parallel_core.traces.trust import LACKING
from tests.parallel_core.traces.made_up_trace import MadeUpTrace
from tests.parallel_core.traces.stored import INCOMPLETE, TRACES, figures_of, rank_of


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("kernels_missing", "device-unrecorded"),
        ("nccl_annotations_only", "exchanges-unrecorded"),
        ("ascend_strings", "no-category"),
    ],
)
def test_where_a_device_is_not_in_the_trace_no_share_of_a_cpu_stands_for_it(
    name: str, code: str
) -> None:
    timeline = read_timeline(INCOMPLETE / f"{name}.json")
    assert {span.device for span in timeline.spans} == {"host"}
    assert [note.code for note in timeline.notes] == [code]


def test_a_host_that_waits_for_a_device_is_not_busy_if_the_device_is_not_in_the_trace() -> None:
    figures = figures_of(INCOMPLETE / "kernels_missing.json")
    (host,) = figures.queues
    assert host.waiting_seconds == pytest.approx(0.009, abs=5e-5)


def test_kernels_that_copy_are_copies() -> None:
    figures = figures_of(INCOMPLETE / "hip_copies.json")
    operations: Counter[str] = Counter()
    for row in figures.operations:
        operations[row.kind] += row.operations
    assert operations == {"compute": 10, "copy": 20}
    # 2.00 of 5.00 ms, by intervals alone.
    assert figures.hidden_share == pytest.approx(0.4)


def test_kernels_named_like_collectives_are_told_until_they_count_as_such() -> None:
    path = INCOMPLETE / "custom_allreduce.json"
    assert "named-like-collectives" in [doubt.code for doubt in rank_of(path).doubts]
    (rank,) = read_ranks([path], re.compile("reduce")).values()
    assert rank.doubts == ()
    (figures,) = rank.figures
    assert figures.parts.exchange_seconds == pytest.approx(0.008)


ENDED, WITHIN = "ended-before-operations", "launches-without-operations"
COMPLETE = [path for path in sorted(TRACES.glob("*/*.gz")) if path.parent != INCOMPLETE]


@pytest.mark.parametrize("path", COMPLETE, ids=lambda path: path.name)
def test_a_complete_trace_is_not_called_incomplete_nor_its_times_and_names_doubtful(
    path: Path,
) -> None:
    codes = {doubt.code for doubt in rank_of(path).doubts}
    assert codes.isdisjoint(
        {
            "device-unrecorded",
            "launches-without-operations",
            "no-category",
            "queue-out-of-order",
            "unknown-names",
        }
    )


def launching(has_run: Sequence[bool]) -> MadeUpTrace:
    """Return a program's launches, some of which have no operation in the trace."""
    trace = MadeUpTrace()
    trace.operator("aten::mm", 0, 5)
    for number, is_here in enumerate(has_run, 1):
        call = trace.call("cudaLaunchKernel", 20 * number)
        if is_here:
            trace.kernel("gemm", 20 * number + 9, 5, call)
    return trace


@pytest.mark.parametrize(
    ("has_run", "said"),
    [
        ([True] * 99, {}),
        ([True] * 9 + [False] * 2, {ENDED: "2 of 11"}),
        ([True] * 90 + [False] + [True] * 9, {WITHIN: "1 of 100"}),
        ([True, False, True, True, False, False], {ENDED: "2 of 6", WITHIN: "1 of 6"}),
        ([False] * 3, {"device-unrecorded": "3"}),
        ([False], {"device-unrecorded": "1"}),
    ],
)
def test_launches_without_an_operation_are_counted_at_the_end_and_within(
    has_run: list[bool], said: dict[str, str], tmp_path: Path
) -> None:
    notes = launching(has_run).read(tmp_path).timeline.notes
    assert {note.code: note.sentence.partition(" launches")[0] for note in notes} == said


def test_operations_launched_before_the_recording_are_told_from_those_without_a_link(
    tmp_path: Path,
) -> None:
    trace = launching([True] * 4)
    for start in (1, 2, 3):
        trace.kernel("gemm", start, 5, number=-start)
    before = trace.read(tmp_path).timeline
    assert [note.code for note in before.notes] == ["launched-before"]
    assert before.unlinked == 3
    never = read_timeline(TRACES / "of_jax" / "gpu.json")
    assert [note.code for note in never.notes] == ["unlinked"]


def rows_within(value: Any) -> Iterator[Any]:
    """Iterate over the rows in a value, itself and those within others too."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from rows_within(item)
    elif declared := figures_of_level(type(value)):
        yield value
        for name in declared:
            yield from rows_within(getattr(value, name))


@pytest.mark.parametrize("folder", ["two_gpus", "incomplete", "linked", "of_jax", "exchanging"])
def test_no_figure_is_unknown_without_a_reason(folder: str) -> None:
    ranks = [rank_of(path) for path in sorted((TRACES / folder).glob("*.json*"))]
    summary = summary_of(dict(enumerate(ranks)))
    levels = set()
    for row in rows_within([summary, *(rank.figures for rank in ranks)]):
        levels.add(type(row))
        for name, declared in figures_of_level(type(row)).items():
            if getattr(row, name) is None:
                assert declared.lacking in LACKING, (type(row), name)
    assert levels >= {CaseFigures, RankFigures}
