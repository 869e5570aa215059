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
from backends.profiling import Timeline, check_profiler
from backends.profiling.slices import Slice, Trace
from tests.backends.profiling.work import see
from tests.conftest import THREADS


def ran(name: str, start: int, *, row: int = 0, thread: int = 7, duration: int = 1) -> Slice:
    return Slice(name, "operator", row, thread, start, start + duration)


def timeline_of(*slices: Slice, labels: str) -> Timeline:
    """Read a trace whose rows have these labels."""
    return profiler.timeline_of(Trace(slices, dict(enumerate(labels.split(", ")))))


def test_an_operator_that_another_one_runs_is_a_part_of_it() -> None:
    outer, inner, after = ran("Convolution", 0, duration=3), ran("Reorder", 0), ran("Reorder", 3)
    for first, second in ((outer, inner), (inner, outer)):
        assert [span.name for span in timeline_of(first, second, after, labels="cpu/0").spans] == [
            "conv2d",
            "Reorder",
        ]


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
    slices = (ran("_np_dot", 2 * row, row=row) for row in range(len(devices)))
    assert [span.device for span in timeline_of(*slices, labels=labels).spans] == devices


def test_an_own_program_s_work_on_cpu_0_is_work() -> None:
    found = timeline_of(ran("dot", 0), ran("WaitForVar", 1), labels="cpu/0")
    assert [(span.device, span.queue, span.kind) for span in found.spans] == [
        ("cpu:0", "compute", "compute"),
        ("host", "waits", "host"),
    ]


def test_threads_that_only_copy_are_queues_for_copies() -> None:
    copies = ran("CopyGPU2CPU", 1, thread=8), ran("CopyCPU2GPU", 2, thread=9), ran("_copyto", 3)
    found = timeline_of(ran("dot", 0), *copies, labels="gpu/0")
    assert [(span.queue, span.kind) for span in found.spans] == [
        ("compute", "compute"),
        ("copy", "copy"),
        ("copy 2", "copy"),
        # A copy that holds up computation stands where it does.
        ("compute", "copy"),
    ]
    assert found.unlinked == 4
    assert "4 of 4 operations on devices are linked to no launch" in found.notes[-1]


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 9])
def test_a_device_that_would_abort_mxnet_s_profiler_is_refused_in_one_line(
    devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "core_numbers", lambda: [0, 1])
    monkeypatch.setitem(
        sys.modules, "mxnet", SimpleNamespace(context=SimpleNamespace(num_gpus=lambda: 0))
    )
    backend: Any = SimpleNamespace(
        name="mxnet", devices=[Device("cpu", number + 1) for number in range(devices)]
    )
    if devices <= 3:
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
