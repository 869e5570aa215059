"""MXNet's profiler: which rows of its traces are which devices, which devices it has rows for, and what a unit is."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import backends
from backends import Array, BackendError, Device
from backends.mxnet import profiler
from backends.mxnet.profiler import timeline_of
from backends.profiling import check_profiler
from backends.profiling.slices import Slice, Trace
from tests.backends.profiling.work import see
from tests.conftest import THREADS


def test_an_operator_that_another_one_runs_is_a_part_of_it() -> None:
    rows = mxnet_rows("cpu/0", "cpu/1")
    outer, inner = (
        Slice("Convolution", "operator", 1, 7, 0, 3),
        Slice("Reorder", "operator", 1, 7, 0, 1),
    )
    after = Slice("Reorder", "operator", 1, 7, 3, 4)
    for slices in ((outer, inner, after), (inner, outer, after)):
        assert [span.name for span in timeline_of(Trace(slices, rows)).spans] == ["conv2d", "Reorder"]


def mxnet_rows(*labels: str) -> dict[int | str, str]:
    return dict(enumerate(labels))


@pytest.mark.parametrize(
    ("labels", "devices"),
    [
        (("cpu/0", "cpu/1", "cpu pinned/", "cpu shared/"), ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]),
        (("cpu/0", "cpu/1", "cpu/2", "cpu pinned/", "cpu shared/"), ["cpu:0", "cpu:1", "cpu:2", "cpu:3", "cpu:4"]),
        (("cpu/0", "cpu/1", "gpu/0", "gpu/1", "cpu pinned/"), ["cpu:0", "cpu:1", "gpu:0", "gpu:1", "cpu:0"]),
    ],
    ids=["two cores", "three cores", "GPUs"],
)
def test_mxnet_s_rows_are_given_their_devices_whatever_their_labels(labels: Sequence[str], devices: list[str]) -> None:
    slices = tuple(Slice("_np_dot", "operator", row, 7, 2 * row, 2 * row + 1) for row in range(len(labels)))
    found = timeline_of(Trace(slices, mxnet_rows(*labels)))
    assert [span.device for span in found.spans] == devices


def test_an_own_program_s_work_on_cpu_0_is_work() -> None:
    def ran(name: str, start: int) -> Slice:
        return Slice(name, "operator", 0, 7, start, start + 1)

    found = timeline_of(Trace((ran("dot", 0), ran("WaitForVar", 1)), mxnet_rows("cpu/0")))
    assert [(span.device, span.queue, span.kind) for span in found.spans] == [
        ("cpu:0", "compute", "compute"),
        ("host", "waits", "host"),
    ]


def test_threads_that_only_copy_are_queues_for_copies() -> None:
    def ran(name: str, thread: int, start: int) -> Slice:
        return Slice(name, "operator", 0, thread, start, start + 1)

    slices = (ran("dot", 7, 0), ran("CopyGPU2CPU", 8, 1), ran("CopyCPU2GPU", 9, 2), ran("_copyto", 7, 3))
    found = timeline_of(Trace(slices, mxnet_rows("gpu/0")))
    assert [(span.queue, span.kind) for span in found.spans] == [
        ("compute", "compute"),
        ("copy", "copy"),
        ("copy 2", "copy"),
        # A copy that holds up computation stands where it does.
        ("compute", "copy"),
    ]
    assert found.unlinked == 4
    assert "4 of 4 operations on devices are linked to no launch" in found.notes[-1]


@pytest.mark.parametrize("index", [1, 2, 3, 4, 9])
def test_a_device_that_would_abort_mxnet_s_profiler_is_refused_in_one_line(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "core_numbers", lambda: [0, 1])
    monkeypatch.setitem(sys.modules, "mxnet", SimpleNamespace(context=SimpleNamespace(num_gpus=lambda: 0)))
    devices = [Device("cpu", number) for number in range(1, index + 1)]
    backend: Any = SimpleNamespace(name="mxnet", devices=devices)
    if index <= 3:
        check_profiler(backend)
        return
    with pytest.raises(BackendError, match=r"^mxnet's profiler would abort at cpu:4: .* --devices 3 or fewer$"):
        check_profiler(backend)


PRODUCTS = 7
"""Of one matrix by itself, none of which may be left out because it equals another."""


def test_a_unit_is_one_entry_of_a_queue_with_all_of_its_operations(
    require: Callable[[str], None], engine: str, tmp_path: Path
) -> None:
    require("mxnet")
    backend = backends.load("mxnet", 3, "cpu", engine, THREADS)
    calls = []

    def multiply(x: Array) -> Array:
        calls.append(x)
        return tuple(backend.ops.matmul(x, x) for _ in range(PRODUCTS))

    unit = backend.ops.as_unit(multiply)
    x = backend.asarray(np.ones((5, 5), dtype=np.float32), backend.devices[0])
    backend.wait(backend.launch(unit, x))
    seen = see(backend, tmp_path / "trace.json", unit=lambda: backend.launch(unit, x))
    assert len(calls) == 1
    names = [span.name for span in seen.spans if span.device != "host"]
    # The synchronous engine names the operators.
    assert names == (["bulk of operators"] if engine == "async" else ["matmul"] * PRODUCTS)
