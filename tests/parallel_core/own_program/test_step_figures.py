"""What a step consists of: on traces of real programs, and on spans whose figures are known."""

import gzip
import json

import pytest

from backends.profiling import Span, Timeline, Window
from parallel_core.own_program.step_figures import KEEPING, StepFigures, step_figures
from tests.parallel_core.own_program.recorded_programs import RECORDED_STEPS, TRACES, recorded


def figures(name: str) -> StepFigures:
    return step_figures(recorded(name), RECORDED_STEPS)


@pytest.mark.parametrize(
    ("name", "exchanges", "early", "least", "most"),
    [("ddp-buckets", 4, 3, 0.7, 0.9), ("ddp-one-bucket", 1, 0, 0, 0.05), ("ddp-no-sync", 0, 0, None, None)],
)
def test_exchanges_are_launched_while_the_backward_pass_goes_on_but_for_the_last_bucket(
    name: str, exchanges: int, early: int, least: float | None, most: float | None
) -> None:
    found = figures(name)
    assert (found.exchanges, found.early_exchanges) == (exchanges * RECORDED_STEPS, early * RECORDED_STEPS)
    if least is None or most is None:
        assert (found.hidden_exchange_share, found.exchange_seconds) == (None, 0)
    else:
        assert found.hidden_exchange_share is not None
        assert least <= found.hidden_exchange_share < most
    parts = (found.compute_share, found.exposed_exchange_share, found.exposed_copy_share, found.idle_share)
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(1)
    assert found.operators[0][0] == "addmm backward"


@pytest.mark.parametrize("name", ["ddp-buckets", "ddp-one-bucket"])
def test_the_time_of_exchange_is_what_the_file_s_own_events_cover(name: str) -> None:
    events = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))["traceEvents"]
    covered, until = 0.0, 0.0
    for event in sorted((one for one in events if one["name"] == "gloo:all_reduce"), key=lambda one: one["ts"]):
        end = event["ts"] + event["dur"]
        covered += max(0.0, end - max(until, event["ts"]))
        until = max(until, end)
    assert figures(name).exchange_seconds == pytest.approx(covered / RECORDED_STEPS / 1e6, rel=1e-6)


def span(name: str, kind: str, queue: str, start: int, end: int, launched: int | None = None) -> Span:
    return Span(name, kind, "gpu:0", queue, start, end, launched, name)  # type: ignore[arg-type]


def test_shares_of_a_step_with_all_parts() -> None:
    spans = (
        span("matmul", "compute", "stream 7", 0, 40),
        span("copy", "copy", "stream 8", 20, 50),
        span("nccl", "exchange", "stream 9", 30, 70),
        span("relu backward", "compute", "stream 7", 80, 100),
    )
    loading = (Window("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 70, 80),)
    found = step_figures(Timeline("torch", spans, annotations=loading), 2)
    assert found.step_seconds == pytest.approx(50e-9)
    assert found.compute_share == pytest.approx(0.6)
    assert found.exposed_exchange_share == pytest.approx(0.3)
    assert found.exposed_copy_share == pytest.approx(0.0)
    assert found.idle_share == pytest.approx(0.1)
    assert found.loading_share == pytest.approx(0.1)
    assert found.hidden_exchange_share == pytest.approx(10 / 40)
    assert found.hidden_copy_share == pytest.approx(20 / 30)
    assert found.early_exchanges == 1, "the next operator after it is of the backward pass"


def test_a_step_in_which_the_recording_ended_is_cut() -> None:
    spans = tuple(span("matmul", "compute", "stream 7", start, start + 5) for start in (0, 10, 20))
    steps = tuple(Window(f"ProfilerStep#{start}", start, start + 10) for start in (0, 10, 20))
    found = step_figures(Timeline("torch", spans, annotations=steps), 2)
    assert found.step_seconds == pytest.approx(10e-9)


def test_keeping_a_gradient_is_no_backward_pass_to_hide_under() -> None:
    kept = span("add", "compute", "stream 7", 5, 9)._replace(operator=KEEPING)
    found = step_figures(Timeline("torch", (span("nccl", "exchange", "stream 9", 0, 9), kept)), 1)
    assert (found.exchanges, found.early_exchanges) == (1, 0)
