"""What real programs' exchanges are said to be, beside a calculation that shares no code with ours.

All ran on two processes over gloo: functional collectives as tensor parallelism uses them, whose
results wait inside the next operator, FSDP2, DistributedDataParallel with its exchange and without,
and a pipeline.
"""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from parallel_core.traces.cases import CaseFigures, timeline_figures
from parallel_core.traces.profile.analysis import analyse
from parallel_core.traces.profile.running import Recorded
from parallel_core.traces.trace_files import read_timeline
from tests.parallel_core.traces.profile.recorded_programs import RECORDED_STEPS
from tests.parallel_core.traces.profile.recorded_programs import TRACES as OF_BOTH_RANKS
from tests.tree import ROOT

TRACES = ROOT / "tests" / "parallel_core" / "traces" / "stored" / "exchanging"
WAITING, LAUNCHING = "wait_tensor", ("c10d::", "_c10d_functional::all_reduce")
Interval = tuple[float, float]


def events_in(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as stream:
        return [event for event in json.load(stream)["traceEvents"] if event.get("ph") == "X"]


def events_of(name: str) -> list[dict[str, Any]]:
    return events_in(TRACES / f"{name}.json.gz")


def figures_of(path: Path) -> CaseFigures:
    (figures,) = timeline_figures(read_timeline(path))
    return figures


def covered(events: Iterable[dict[str, Any]]) -> list[Interval]:
    """Return the times, in microseconds, that some events cover together."""
    times: list[Interval] = []
    for start, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        if times and start <= times[-1][1]:
            times[-1] = (times[-1][0], max(end, times[-1][1]))
        else:
            times.append((start, end))
    return times


def length(times: Iterable[Interval]) -> float:
    return sum(end - start for start, end in times)


def length_of_both(some: Iterable[Interval], others: Iterable[Interval]) -> float:
    others = list(others)
    overlaps = (
        min(end, other_end) - max(start, other_start)
        for start, end in some
        for other_start, other_end in others
    )
    return sum(overlap for overlap in overlaps if overlap > 0)


def whole_microseconds(event: dict[str, Any]) -> set[int]:
    return set(range(int(event["ts"]), int(event["ts"] + event["dur"])))


def test_an_operator_that_waits_inside_itself_computes_during_the_rest_only() -> None:
    exchanged: set[int] = set()
    computed: set[int] = set()
    waited: set[int] = set()
    for event in events_of("functional_tp_rank0"):
        if event["name"].startswith("gloo:"):
            exchanged |= whole_microseconds(event)
        if event.get("cat") == "cpu_op":
            computed |= whole_microseconds(event)
            if WAITING in event["name"] or event["name"].startswith(LAUNCHING):
                waited |= whole_microseconds(event)
    with_waits = len(exchanged & computed) / len(exchanged)
    right = len(exchanged & (computed - waited)) / len(exchanged)
    # What is outermost would be told as hidden.
    assert with_waits > 0.9
    assert right < 0.1
    assert figures_of(
        TRACES / "functional_tp_rank0.json.gz"
    ).parts.hidden_exchange_share == pytest.approx(right, abs=0.05)


def test_an_exchange_is_early_if_some_of_the_backward_pass_begins_after_its_launch() -> None:
    events = events_of("fsdp2_rank0")
    launches = [event["ts"] for event in events if event["name"].startswith("c10d::")]
    backward = [
        event["ts"]
        for event in events
        if event["name"].startswith("autograd::engine::evaluate_function")
    ]
    early = forward = 0
    for step in (event for event in events if event["name"].startswith("ProfilerStep#")):
        end = step["ts"] + step["dur"]
        last = max(start for start in backward if step["ts"] <= start < end)
        early += sum(step["ts"] <= launch < last for launch in launches)
        # What these can hide under is the forward pass.
        first = min(start for start in backward if step["ts"] <= start < end)
        forward += sum(step["ts"] <= launch < first for launch in launches)
    figures = figures_of(TRACES / "fsdp2_rank0.json.gz")
    assert (figures.exchanges, figures.early_exchanges) == (len(launches), early) == (60, 55)
    in_forward = [row for row in figures.exchanges_by_pass if row.launched == "forward"]
    assert sum(row.number for row in in_forward) * 5 == forward == 20


def both_ranks(program: str) -> dict[Path, Recorded]:
    return {
        OF_BOTH_RANKS / f"{program}-rank{rank}.json.gz": Recorded(
            pid=rank, framework="torch", rank=rank, steps_recorded=RECORDED_STEPS
        )
        for rank in (0, 1)
    }


@pytest.mark.parametrize(("program", "exchanges"), [("ddp", 4), ("pipeline", 8)])
def test_what_is_hidden_of_an_exchange_is_what_operators_cover_of_it(
    program: str, exchanges: int
) -> None:
    for path in both_ranks(program):
        figures = figures_of(path)
        events = events_in(path)
        exchanging = covered(event for event in events if event["name"].startswith("gloo:"))
        operators = [event for event in events if event.get("cat") == "cpu_op"]
        launching = covered(event for event in operators if event["name"].startswith("c10d::"))
        computing = covered(operators)
        under = length_of_both(exchanging, computing) - length_of_both(exchanging, launching)
        assert figures.exchanges == exchanges
        assert figures.parts.exchange_seconds * 1e6 == pytest.approx(length(exchanging))
        assert figures.parts.hidden_exchange_share == pytest.approx(
            under / length(exchanging), abs=0.001
        )


def test_a_pipeline_waits_for_the_other_process() -> None:
    found = analyse(both_ranks("pipeline"))
    assert found.answer.overlap == "none"
    assert all(trace.figures[0].between_two_share == 1 for trace in found.traces.values())


def test_processes_that_exchange_nothing_are_asked_whether_they_should() -> None:
    for path in both_ranks("no-sync"):
        assert not [event for event in events_in(path) if event["name"].startswith("gloo:")]
    found = analyse(both_ranks("no-sync"))
    assert found.answer.overlap == "no-exchange"
    assert sum("no_sync()" in sentence for sentence in found.answer.sentences) == 1
