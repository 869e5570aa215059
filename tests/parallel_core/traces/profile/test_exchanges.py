"""What a program exchanges and when: on traces of real programs, and on spans whose figures are
known.
"""

from pathlib import Path

import pytest

from backends.profiling import Span, SpanKind, Timeline, Window
from parallel_core.traces.account import PARTS
from parallel_core.traces.cases import CaseFigures, timeline_figures
from parallel_core.traces.evidence.passes import KEEPING
from tests.parallel_core.traces.made_up_trace import MadeUpTrace
from tests.parallel_core.traces.profile.recorded_programs import RECORDED_STEPS, recorded


def figures_of(timeline: Timeline) -> CaseFigures:
    """Return the figures of a program."""
    (figures,) = timeline_figures(timeline)
    return figures


@pytest.mark.parametrize(
    ("name", "exchanges", "early", "least", "most"),
    [
        ("ddp-buckets", 4, 3, 0.7, 0.9),
        ("ddp-one-bucket", 1, 0, 0, 0.05),
    ],
)
def test_exchanges_are_launched_while_the_backward_pass_goes_on_but_for_the_last_bucket(
    name: str, exchanges: int, early: int, least: float, most: float
) -> None:
    figures = figures_of(recorded(name))
    assert figures.exchanges == exchanges * RECORDED_STEPS
    assert figures.early_exchanges == early * RECORDED_STEPS
    hidden_share = figures.parts.hidden_exchange_share
    assert hidden_share is not None
    assert least <= hidden_share < most


def test_a_program_that_keeps_its_gradients_exchanges_nothing() -> None:
    figures = figures_of(recorded("ddp-no-sync"))
    assert figures.exchanges == 0
    assert figures.early_exchanges == 0
    assert figures.parts.hidden_exchange_share is None


def span(name: str, kind: SpanKind, queue: str, start: int, end: int) -> Span:
    """Return an operation of the GPU that an operator of its name launched."""
    return Span(name, kind, "gpu:0", queue, start, end, operator=name)


def test_shares_of_a_time_with_all_parts() -> None:
    spans = (
        span("matmul", "compute", "stream 7", 0, 40),
        span("copy", "copy", "stream 8", 20, 50),
        span("nccl", "exchange", "stream 9", 30, 70),
        span("relu backward", "compute", "stream 7", 80, 100),
    )
    loading = (Window("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 70, 80),)

    figures = figures_of(Timeline("torch", spans, annotations=loading))

    assert figures.loading_share == pytest.approx(0.1)
    assert [getattr(figures.parts, part) for part in PARTS] == pytest.approx(
        [60e-9, 30e-9, 0, 10e-9]
    )
    assert figures.parts.hidden_exchange_share == pytest.approx(10 / 40)
    assert figures.parts.hidden_copy_share == pytest.approx(20 / 30)
    # The next operator after the exchange is of the backward pass.
    assert figures.early_exchanges == 1


def test_keeping_a_gradient_is_no_backward_pass_to_hide_under() -> None:
    exchange = span("nccl", "exchange", "stream 9", 0, 9)
    keeping = span("add", "compute", "stream 7", 5, 9)._replace(operator=KEEPING)
    figures = figures_of(Timeline("torch", (exchange, keeping)))
    assert figures.exchanges == 1
    assert figures.early_exchanges == 0


def test_a_pipeline_s_receives_wait_for_the_other_process() -> None:
    spans = (
        span("linear", "compute", "thread", 0, 40),
        span("gloo:send", "exchange", "gloo", 40, 50),
        span("gloo:recv", "exchange", "gloo", 50, 100),
        span("gloo:all_reduce", "exchange", "gloo", 100, 120),
    )
    figures = figures_of(Timeline("torch", spans))
    # Of 80 ns of exchange, 10 ns of a send and 50 ns of a receive.
    assert figures.between_two_share == pytest.approx(60 / 80)


@pytest.mark.parametrize(("starts", "early"), [(100, 0), (2100, 5)], ids=["before", "within"])
def test_what_ends_before_the_forward_pass_is_not_early(
    starts: int, early: int, tmp_path: Path
) -> None:
    trace = MadeUpTrace()
    for start in trace.steps(5):
        trace.all_reduce(start + starts, 1000)
        for layer in range(4):
            trace.operator("aten::linear", start + 2000 + 1000 * layer, 990)
            name = "autograd::engine::evaluate_function: AddmmBackward0"
            trace.operator(name, start + 7000 + 1000 * layer, 990)
    figures = trace.figures(tmp_path)
    assert figures.early_exchanges == early
    (row,) = figures.exchanges_by_pass
    assert row.launched == ("forward" if early else "after")
    assert figures.exchanging_steps == 5
