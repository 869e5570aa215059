"""MXNet's profiler: which rows of its traces are which devices, which devices it has rows for, and
what a unit is.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import backends
from backends import Array, BackendError, Device
from backends.mxnet import profiler
from backends.profiling import Span, Timeline, Window, check_profiler, marks
from backends.profiling.slices import Slice, Trace
from parallel_core.traces.case_spans import cases_of
from parallel_core.traces.cases import CaseFigures
from tests.backends.profiling.work import see
from tests.conftest import THREADS


def operator(name: str, start: int, *, row: int = 0, thread: int = 7, duration: int = 1) -> Slice:
    """Make an operator's slice on a thread, in the row of a device."""
    return Slice(name, "operator", row, thread, start, start + duration)


def timeline_of(*slices: Slice, labels: str) -> Timeline:
    """Read a trace whose rows have these labels, which are separated by commas."""
    label_of_row = dict(enumerate(labels.split(", ")))
    return profiler.timeline_of(Trace(slices, label_of_row))


@pytest.mark.parametrize("inner_comes_first", [False, True])
def test_an_operator_that_another_one_runs_is_a_part_of_it(inner_comes_first: bool) -> None:
    outer, inner = operator("Convolution", 0, duration=3), operator("Reorder", 0)
    behind = operator("Reorder", 3)
    slices = (inner, outer, behind) if inner_comes_first else (outer, inner, behind)
    timeline = timeline_of(*slices, labels="cpu/0")
    assert [span.name for span in timeline.spans] == ["conv2d", "Reorder"]


@pytest.mark.parametrize(
    ("labels", "devices"),
    [
        ("cpu/0, cpu/1, cpu pinned/, cpu shared/", ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]),
        (
            "cpu/0, cpu/1, cpu/2, cpu pinned/, cpu shared/",
            ["cpu:0", "cpu:1", "cpu:2", "cpu:3", "cpu:4"],
        ),
        ("cpu/0, cpu/1, gpu/0, gpu/1, cpu pinned/", ["cpu:0", "cpu:1", "gpu:0", "gpu:1", "cpu:0"]),
    ],
    ids=["two cores", "three cores", "GPUs"],
)
def test_mxnet_s_rows_are_given_their_devices_whatever_their_labels(
    labels: str, devices: list[str]
) -> None:
    one_operator_a_row = [operator("_np_dot", 2 * row, row=row) for row in range(len(devices))]
    timeline = timeline_of(*one_operator_a_row, labels=labels)
    assert [span.device for span in timeline.spans] == devices


def test_an_own_program_s_work_on_cpu_0_is_work() -> None:
    timeline = timeline_of(operator("dot", 0), operator("WaitForVar", 1), labels="cpu/0")
    product, wait = timeline.spans
    assert (product.device, product.queue, product.kind) == ("cpu:0", "compute", "compute")
    assert (wait.device, wait.queue, wait.kind) == ("host", "waits", "host")


@pytest.mark.parametrize("name", ["KVStoreDistDefaultStoragePushPull", "KVStoreDistDefaultPush"])
def test_what_is_pushed_to_servers_is_an_exchange_that_any_device_hides(name: str) -> None:
    # Two are in flight together.
    pushes = [operator(name, start, row=2, duration=90) for start in (0, 10)]
    timeline = timeline_of(*pushes, operator("dot", 76, duration=50), labels="cpu/0, cpu/1, cpu/2")
    (case,) = cases_of(timeline)
    assert case.of_kind("exchange").sum() == 2
    parts = CaseFigures(case).parts
    assert parts.exchange_seconds == pytest.approx(100e-9)
    assert parts.hidden_exchange_share == pytest.approx(0.24)


def test_threads_that_only_copy_are_queues_for_copies() -> None:
    timeline = timeline_of(
        operator("dot", 0, thread=7),
        operator("CopyGPU2CPU", 1, thread=8),
        operator("CopyCPU2GPU", 2, thread=9),
        operator("_copyto", 3, thread=7),
        labels="gpu/0",
    )
    assert [(span.queue, span.kind) for span in timeline.spans] == [
        ("compute", "compute"),
        ("copy", "copy"),
        ("copy 2", "copy"),
        # A copy that holds up computation stands where it does.
        ("compute", "copy"),
    ]
    assert timeline.unlinked == 4
    assert timeline.notes[-1].code == "unlinked"


@pytest.mark.parametrize(("start", "launched"), [(4, None), (5, 5)])
def test_an_operator_begins_with_its_call_or_later(start: int, launched: int | None) -> None:
    mark = f"{marks.OURS}launch matmul on cpu:1 #1"
    call = Span("launch matmul", "host", "host", "Python", 5, 6, operator=mark)
    product = Span("matmul", "compute", "cpu:1", "compute", start, 9)
    (linked,), _ = profiler._link_launches([product], [call], [Window("case", 0, 10)])
    assert linked.launched == launched


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_a_device_that_would_abort_mxnet_s_profiler_is_refused_in_one_line(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "core_numbers", lambda: [0, 1])
    mxnet = SimpleNamespace(context=SimpleNamespace(num_gpus=lambda: 0))
    monkeypatch.setitem(sys.modules, "mxnet", mxnet)
    devices = [Device("cpu", number) for number in range(1, count + 1)]
    backend: Any = SimpleNamespace(name="mxnet", devices=devices)
    # On two cores MXNet has rows up to cpu:3.
    if count <= 3:
        check_profiler(backend)
        return
    with pytest.raises(
        BackendError, match=r"^mxnet's profiler would abort at cpu:4: .* --devices 3 or fewer$"
    ):
        check_profiler(backend)


PRODUCTS = 7
"""Of one matrix by itself, none of which may be left out because it equals another."""


def test_a_unit_is_one_entry_of_a_queue_with_all_of_its_operations(
    require: Callable[[str], None], engine: str, tmp_path: Path
) -> None:
    require("mxnet")
    backend = backends.load("mxnet", 3, "cpu", engine, THREADS)
    calls_from_python = []

    def multiply(x: Array) -> Array:
        calls_from_python.append(x)
        return tuple(backend.ops.matmul(x, x) for _ in range(PRODUCTS))

    unit = backend.ops.as_unit(multiply)
    x = backend.asarray(np.ones((5, 5), dtype=np.float32), backend.devices[0])
    backend.wait(backend.launch(unit, x))
    timeline = see(backend, tmp_path / "trace.json", unit=lambda: backend.launch(unit, x))

    assert len(calls_from_python) == 1
    names = [span.name for span in timeline.spans if span.device != "host"]
    if engine == "async":
        assert names == ["bulk of operators"]
    else:
        # The synchronous engine names the operators.
        assert names == ["matmul"] * PRODUCTS
