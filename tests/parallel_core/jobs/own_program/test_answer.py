"""The three sentences: what they say of real traces, and of each thing that can bound a step."""

from dataclasses import replace

import pytest

from parallel_core.jobs.own_program.answer import Waiting, answer
from parallel_core.jobs.own_program.step_figures import QueueShare, StepFigures, step_figures
from tests.parallel_core.jobs.own_program.recorded_programs import RECORDED_STEPS, recorded

COMPUTING = StepFigures(
    steps=5,
    step_seconds=0.02,
    queues=(QueueShare("gpu:0", "stream 7", 0.92), QueueShare("gpu:0", "stream 9", 0.3)),
    compute_share=0.92,
    exposed_exchange_share=0.03,
    exposed_copy_share=0.01,
    idle_share=0.04,
    exchange_seconds=0.006,
    hidden_exchange_share=0.9,
    copy_seconds=0.0002,
    hidden_copy_share=0.0,
    exchanges=20,
    early_exchanges=15,
    loading_share=0.0,
    operators=(("conv2d backward", 0.6), ("conv2d", 0.3)),
)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        (
            "ddp-buckets",
            "Overlap: 74 % of the exchange (8.84 ms in a step) lay under computation; 6 of 8 were launched",
        ),
        ("ddp-one-bucket", "No overlap: 0 % of the exchange (5.21 ms in a step) lay under computation, for none was"),
        ("ddp-no-sync", "Nothing was exchanged between devices or processes."),
    ],
)
def test_whether_the_exchange_of_a_real_program_is_hidden(name: str, verdict: str) -> None:
    _, hidden, bound = answer([step_figures(recorded(name), RECORDED_STEPS)])
    assert hidden.startswith(verdict)
    assert bound.startswith("Computation bounds a step")


def test_a_program_that_computes_and_hides_its_exchange() -> None:
    worked, hidden, bound = answer([COMPUTING])
    assert worked == "A step took 20.0 ms (5 recorded): gpu:0 stream 7 worked 92 % of it and gpu:0 stream 9 30 %."
    assert hidden == (
        "Overlap: 90 % of the exchange (6.00 ms in a step) lay under computation; 15 of 20 were launched before the "
        "backward pass was over."
    )
    assert bound == (
        "Computation bounds a step: 92 % of it; look first at the operators that compute longest, conv2d backward "
        "(60 %) and conv2d (30 %) of their time."
    )


def test_several_processes_are_one_program() -> None:
    other = replace(COMPUTING, queues=(QueueShare("gpu:0", "stream 7", 0.8),), hidden_exchange_share=0.7)
    worked, hidden, _ = answer([COMPUTING, other])
    assert "5 recorded on each of 2 processes" in worked
    assert "gpu:0 stream 7 worked 80 % to 92 % of it" in worked
    assert hidden.startswith("Overlap: 70 % to 90 % of the exchange")
    assert "30 of 40" in hidden


@pytest.mark.parametrize(
    ("changes", "bound", "first"),
    [
        ({"exposed_exchange_share": 0.2, "compute_share": 0.7}, "Computation", "beyond the backward pass"),
        ({"exposed_exchange_share": 0.2, "early_exchanges": 0}, "Computation", "starts after the backward pass"),
        ({"exposed_exchange_share": 0.6, "compute_share": 0.3}, "Exchange", "60 % of exchange"),
        ({"exposed_copy_share": 0.5, "compute_share": 0.4}, "Copying", "pinned memory"),
        ({"idle_share": 0.7, "compute_share": 0.2}, "Waiting", "Python between the operators"),
        ({"idle_share": 0.7, "compute_share": 0.2, "loading_share": 0.6}, "Waiting", "the DataLoader"),
    ],
)
def test_what_bounds_a_step_and_what_to_look_at_first(changes: dict[str, float], bound: str, first: str) -> None:
    sentence = answer([replace(COMPUTING, **changes)])[2]  # type: ignore[arg-type]
    assert sentence.startswith(bound)
    assert first in sentence


def test_an_exchange_that_hides_elsewhere_than_under_the_backward_pass_is_hidden() -> None:
    forward = replace(COMPUTING, early_exchanges=0)
    assert answer([forward])[1].startswith("Overlap: 90 %")
    assert answer([replace(forward, hidden_exchange_share=0.3)])[1].startswith("No overlap: 30 %")
    assert answer([replace(COMPUTING, hidden_exchange_share=0.3)])[1].startswith("Some overlap: 30 %")


def test_copies_are_named_if_nothing_is_exchanged() -> None:
    alone = replace(COMPUTING, hidden_exchange_share=None, hidden_copy_share=0.5)
    assert answer([alone])[1] == (
        "Nothing was exchanged between devices or processes; 50 % of the copying lay under computation."
    )


def test_processes_that_wait_for_each_other_are_said_to() -> None:
    bound_by_exchange = replace(COMPUTING, exposed_exchange_share=0.6, compute_share=0.3)
    _, hidden, bound = answer([bound_by_exchange] * 2, Waiting(0.8, last_rank=1, last=9, exchanges=10))
    assert "(6.00 ms in a step, 80 % of it waiting for each other)" in hidden
    assert bound.endswith(
        "look first at who is late: most of the exchange is waiting, and rank 1 came last in 9 of 10."
    )
    _, hidden, bound = answer([bound_by_exchange] * 2, Waiting(0.2, last_rank=1, last=9, exchanges=10))
    assert "waiting" not in hidden + bound
