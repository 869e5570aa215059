"""What two real programs' exchanges are said to be, beside a calculation that shares no code with
ours.

Both ran on two processes over gloo: functional collectives as tensor parallelism uses them, whose
results wait inside the next operator, and FSDP2.
"""

import gzip
import json
from typing import Any

import pytest

from parallel_core.own_program.step_figures import StepFigures, step_figures
from parallel_core.trace_analysis.trace_files import read_timeline
from tests.tree import ROOT

TRACES = ROOT / "tests" / "parallel_core" / "trace_analysis" / "traces" / "exchanging"
STEPS = 5
WAITING, LAUNCHING = "wait_tensor", ("c10d::", "_c10d_functional::all_reduce")


def events_of(name: str) -> list[dict[str, Any]]:
    with gzip.open(TRACES / f"{name}.json.gz") as stream:
        return [event for event in json.load(stream)["traceEvents"] if event.get("ph") == "X"]


def figures_of(name: str) -> StepFigures:
    return step_figures(read_timeline(TRACES / f"{name}.json.gz"), STEPS)


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
    assert figures_of("functional_tp_rank0").hidden_exchange_share == pytest.approx(right, abs=0.05)


def test_an_exchange_is_early_if_some_of_the_backward_pass_begins_after_its_launch() -> None:
    events = events_of("fsdp2_rank0")
    launches = [event["ts"] for event in events if event["name"].startswith("c10d::")]
    backward = [
        event["ts"]
        for event in events
        if event["name"].startswith("autograd::engine::evaluate_function")
    ]
    early = 0
    for step in (event for event in events if event["name"].startswith("ProfilerStep#")):
        end = step["ts"] + step["dur"]
        last = max(start for start in backward if step["ts"] <= start < end)
        early += sum(step["ts"] <= launch < last for launch in launches)
    figures = figures_of("fsdp2_rank0")
    assert (figures.exchanges, figures.early_exchanges) == (len(launches), early) == (60, 55)
