"""Timelines from files, of other people's programs, years, clocks and accelerators: what ran is
read, told, or refused.

The profiler is recognised by what its file holds.
"""

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backends.profiling import HOST_DEVICE, Timeline
from backends.profiling.readers import MOST_QUEUES
from parallel_core.system.errors import RequestError
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.cases import timeline_figures
from parallel_core.traces.trace_files import read_timeline
from tests.backends.profiling.events import EPOCH, Event, complete, event_of
from tests.parallel_core.traces.stored import TRACES, figures_of


def on_devices(timeline: Timeline) -> Counter[tuple[str, str]]:
    """Return how many operations each queue of a device other than the CPU has."""
    on_device = [span for span in timeline.spans if span.device not in ("host", "cpu")]
    return Counter((span.device, span.queue) for span in on_device)


@pytest.mark.parametrize(
    ("name", "devices", "compute_seconds", "exchange_seconds", "hidden_share", "steps"),
    [
        ("of_jax/gpu.json", {"gpu:0"}, 0.006, 0.004, 0.5, 10),
        # A TPU's sparse core exchanges beside its tensor core.
        ("of_jax/tpu_sparsecore.json", {"host", "tpu:0"}, 0.0084, 0.0048, 0.5, 0),
        # While one CPU waits for the other, that one computes.
        ("of_jax/two_cpus.json.gz", {"host", "cpu:0", "cpu:1"}, 0.067909627, 0.0160394305, 0, 10),
        ("exchanging/deepep.json", {"gpu:0"}, 0.016, 0.008, 0.5, 8),
    ],
)
def test_what_a_trace_computes_and_exchanges_is_what_its_intervals_give(
    name: str,
    devices: set[str],
    compute_seconds: float,
    exchange_seconds: float,
    hidden_share: float,
    steps: int,
) -> None:
    figures = figures_of(TRACES / name)
    assert {queue.device for queue in figures.queues} == devices
    assert figures.compute_seconds == pytest.approx(compute_seconds)
    assert figures.parts.exchange_seconds == pytest.approx(exchange_seconds)
    assert figures.parts.hidden_exchange_share == pytest.approx(hidden_share)
    assert len(figures.steps.steps if figures.steps else ()) == steps


def test_kineto_of_2021_has_a_gpu_and_its_launches() -> None:
    timeline = read_timeline(TRACES / "one_gpu" / "kineto_of_2021.json.gz")
    operations = [span for span in timeline.spans if span.device == "gpu:0"]
    assert on_devices(timeline) == {("gpu:0", "stream 7"): 32}
    assert Counter(span.kind for span in operations) == {"compute": 30, "copy": 2}
    assert all(span.launched is not None and span.launched < span.start for span in operations)
    # Steps are marks, and what the runtime is called for is its caller's work.
    names = " ".join(span.name for span in timeline.spans)
    assert not re.search("ProfilerStep|cudaLaunchKernel", names)
    assert cases_of(timeline)[0].resolution == 1000


def test_mtia_s_queues_hold_work_and_its_waits_are_told() -> None:
    timeline = read_timeline(TRACES / "other_accelerators" / "mtia.json.gz")
    assert {device for device, _ in on_devices(timeline)} == {"mtia:17"}
    assert Counter(span.kind for span in timeline.spans) == {"copy": 877, "compute": 97}
    assert sum(span.launched is not None for span in timeline.spans) == 730
    assert [note.code for note in timeline.notes] == ["waits-left-out", "launched-before"]


def test_kernels_threads_and_gpus_have_names() -> None:
    timeline = read_timeline(TRACES / "one_gpu" / "mi250_minitoy.json.gz")
    assert {(span.device, span.queue) for span in timeline.spans} == {
        ("gpu:2", "stream 0"),
        (HOST_DEVICE, "thread 597913 (python3)"),
        (HOST_DEVICE, "thread 598009 (pt_autograd_0)"),
    }
    assert timeline.models == ("gpu:2 is AMD Radeon Graphics",)
    assert timeline.unlinked == 0
    named = {span.operator: span.name for span in timeline.spans if span.device != HOST_DEVICE}
    assert len(set(named.values())) == len(named) == 13
    assert "elementwise_kernel<…ackward_cuda_kernel>" in named.values()


def event(category: str, name: str, start: int, **more: Any) -> Event:
    return complete(name, start, cat=category, **more)


def of_torch(*events: Event) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": events})


def read(tmp_path: Path, *events: Event) -> Timeline:
    path = tmp_path / "trace.json"
    path.write_text(of_torch(*events))
    return read_timeline(path)


@pytest.mark.parametrize(
    ("runtime", "category", "device"),
    [
        ("cuda_runtime", "kernel", "gpu:0"),
        ("cuda_driver", "kernel", "gpu:0"),
        ("xpu_runtime", "kernel", "xpu:0"),
        ("mtia_runtime", "mtia_ccp_events", "mtia:0"),
        ("Runtime", "Kernel", "gpu:0"),
        ("privateuse1_runtime", "kernel", "gpu:0"),
        ("cuda_runtime", "hpu_op", "hpu:0"),
    ],
)
def test_every_accelerator_s_work_is_read_with_its_launch(
    tmp_path: Path, runtime: str, category: str, device: str
) -> None:
    launch = event(runtime, "launch", 10, args={"correlation": 7})
    timeline = read(
        tmp_path,
        launch,
        event(category, "gemm", 20, pid=0, tid="stream 7", args={"correlation": 7}),
    )
    (span,) = timeline.spans
    assert span.device == device
    assert span.queue == "stream 7"
    assert span.launched == 0


def test_a_row_that_is_called_after_another_accelerator_is_one(tmp_path: Path) -> None:
    name = {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "NPU 3"}}
    timeline = read(tmp_path, name, event("kernel", "gemm", 20, pid=3, args={"stream": 2}))
    assert on_devices(timeline) == {("npu:3", "stream 2"): 1}


def test_what_is_not_known_is_counted_and_what_the_host_says_of_itself_is_not(
    tmp_path: Path,
) -> None:
    categories = ("cpu_op", "python_function", "mtia_insight", "mtia_insight", "glow_op")
    timeline = read(
        tmp_path, *(event(category, "a", start) for start, category in enumerate(categories))
    )
    assert [note.code for note in timeline.notes] == ["unknown-category"] * 2


@pytest.mark.parametrize("number", [None, [1], {"a": 1}, 1.5, "x", 2**70])
def test_numbers_of_other_forms_link_nothing_and_break_nothing(
    tmp_path: Path, number: object
) -> None:
    launch = event("cuda_runtime", "cudaLaunchKernel", 10, args={"correlation": number})
    kernel = event("kernel", "gemm", 20, pid=0, args={"correlation": 3, "device": 0, "stream": 7})
    timeline = read(tmp_path, launch, kernel, event("kernel", "relu", 30, args="none"))
    assert {span.launched for span in timeline.spans} == {None}


def test_ids_of_several_ranks_that_collide_break_nothing(tmp_path: Path) -> None:
    same_id = {"correlation": 1, "device": 0, "stream": 7}
    timeline = read(
        tmp_path,
        event("cuda_runtime", "cudaLaunchKernel", 10, args=same_id),
        event("cuda_runtime", "cudaLaunchKernel", 50, args=same_id),
        event("kernel", "gemm", 20, pid=0, args=same_id),
        event("kernel", "gemm", 21, pid=0, args=same_id),
    )
    assert len(timeline.spans) == 2
    (figures,) = timeline_figures(timeline)
    assert figures.seconds > 0


def test_mxnet_s_trace_is_recognised_whatever_its_name_and_the_steps_that_it_marks_are_annotations(
    tmp_path: Path,
) -> None:
    rows = [
        {"ph": "M", "args": {"name": f"cpu/{row}"}, "pid": row, "name": "process_name"}
        for row in (0, 1)
    ]
    step = {"name": "ProfilerStep#3", "cat": "event", "pid": 9}
    marks = [
        event_of("B", "_np_dot", EPOCH + 264),
        event_of("E", "_np_dot", EPOCH + 2200),
        event_of("B", time=EPOCH, **step),
        event_of("E", time=EPOCH + 3000, **step),
    ]
    document = {"traceEvents": rows + marks, "displayTimeUnit": "ms"}
    path = tmp_path / "anything"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))

    timeline = read_timeline(path)

    assert "_np_dot" in [span.operator for span in timeline.spans]
    (annotation,) = timeline.annotations
    assert annotation.name == "ProfilerStep#3"
    assert annotation.end - annotation.start == 3_000_000


NO_TIMELINES = {
    "a result": ('{"schema": 1}', "it holds no events"),
    "another program's": (
        json.dumps([event("b", "a", 1)]),
        "none of the profilers known here wrote it (known for jax, mxnet, parallel-core, torch)",
    ),
    "nothing that ran": (of_torch(event("Trace", "a", 1)), "nothing that ran"),
}


@pytest.mark.parametrize(("text", "message"), NO_TIMELINES.values(), ids=NO_TIMELINES)
def test_a_file_that_is_no_timeline_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=re.escape(message)) as refused:
        read_timeline(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("more", [0, 1])
def test_more_threads_than_any_program_has_are_refused_in_one_line(
    more: int, tmp_path: Path
) -> None:
    events = [event("kernel", "k", 9, tid=stream) for stream in range(MOST_QUEUES + more)]
    if more:
        with pytest.raises(RequestError, match=r"trace\.json .*10,001 threads"):
            read(tmp_path, *events)
    else:
        assert len(read(tmp_path, *events).spans) == MOST_QUEUES
