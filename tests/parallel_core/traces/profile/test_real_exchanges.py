"""What real programs' exchanges are said to be, beside a calculation that shares no code with ours.

All ran on two processes over gloo: functional collectives as tensor parallelism uses them, whose
results wait inside the next operator, FSDP2, DistributedDataParallel with its exchange and without,
and a pipeline.
"""

from pathlib import Path

import pytest

from parallel_core.traces.profile.analysis import analyse
from parallel_core.traces.profile.running import Recorded
from tests.parallel_core.traces.profile.recorded_programs import RECORDED_STEPS
from tests.parallel_core.traces.profile.recorded_programs import TRACES as OF_BOTH_RANKS
from tests.parallel_core.traces.stored import TRACES, events_in, figures_of

WAITING, LAUNCHING = "wait_tensor", ("c10d::", "_c10d_functional::all_reduce")


OF_ONE_RANK = TRACES / "exchanging/functional_tp_rank0.json.gz"


@pytest.mark.parametrize(
    "path",
    [OF_ONE_RANK, *OF_BOTH_RANKS.glob("ddp-rank*.gz"), *OF_BOTH_RANKS.glob("pipeline-*.gz")],
    ids=lambda path: path.name,
)
def test_what_is_hidden_of_an_exchange_is_what_operators_cover_of_it(path: Path) -> None:
    """Microsecond by microsecond; an operator computes only where nothing inside it waits."""
    exchanged: set[int] = set()
    computed: set[int] = set()
    waited: set[int] = set()
    exchanges = 0
    for event in events_in(path):
        microseconds = range(int(event["ts"]), int(event["ts"] + event["dur"]))
        if event["name"].startswith("gloo:"):
            exchanges += 1
            exchanged.update(microseconds)
        if event.get("cat") == "cpu_op":
            computed.update(microseconds)
            if WAITING in event["name"] or event["name"].startswith(LAUNCHING):
                waited.update(microseconds)
    hidden = len(exchanged & (computed - waited)) / len(exchanged)
    tolerance = 0.001
    if path == OF_ONE_RANK:
        tolerance = 0.05
        # What is outermost would be told as hidden.
        assert len(exchanged & computed) / len(exchanged) > 0.9
        assert hidden < 0.1

    figures = figures_of(path)

    assert figures.exchanges == exchanges
    assert figures.parts.exchange_seconds * 1e6 == pytest.approx(len(exchanged), rel=0.001)
    assert figures.parts.hidden_exchange_share == pytest.approx(hidden, abs=tolerance)


def both_ranks(program: str) -> dict[Path, Recorded]:
    return {
        OF_BOTH_RANKS / f"{program}-rank{rank}.json.gz": Recorded(
            pid=rank, framework="torch", rank=rank, steps_recorded=RECORDED_STEPS
        )
        for rank in (0, 1)
    }


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
