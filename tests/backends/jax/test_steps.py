"""With `step-compiled` what is launched becomes one program for each step, and gives the numbers that launches give."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backends
from backends import Array, Backend, ComputationError
from backends.arrays import tree_leaves
from backends.jax import profiler
from backends.profiling import case_text, read_trace, run_profiler
from tests.backends.profiling.work import named

STEPS = 4
Load = Callable[..., Backend]
Programs = list[tuple[str, int]]
"""The device of each program that was enqueued, and how many arrays it gave."""


@pytest.fixture
def programs() -> Programs:
    return []


@pytest.fixture
def load(require: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, programs: Programs) -> Load:
    """Load JAX's asynchronous engine, with `step-compiled` unless told otherwise, and note its programs."""
    require("jax")
    from backends.jax.backend import JAXBackend

    enqueued = JAXBackend._enqueued

    def noting(self: JAXBackend, device: Any, result: Array, checks: Any) -> Array:
        programs.append((str(device), len(list(tree_leaves(result)))))
        return enqueued(self, device, result, checks)

    monkeypatch.setattr(JAXBackend, "_enqueued", noting)

    def load(devices: int = 1, variant: str = "step-compiled") -> Backend:
        return backends.load("jax", devices, "cpu", "async", 1, variants=[variant])

    return load


def train(backend: Backend, steps: int = STEPS, labels: tuple[int, ...] = (0, 2, 1, 1)) -> tuple[list[Array], Array]:
    """Launch steps on all devices, and keep what a training loop keeps: the losses and the last parameters."""
    ops, devices = backend.ops, backend.devices
    random = np.random.default_rng(0)
    images = random.standard_normal((len(labels), 5)).astype(np.float32)
    weight = random.standard_normal((5, 3)).astype(np.float32)
    differentiate = ops.value_and_grad(lambda p, x, y: ops.cross_entropy(ops.matmul(x, p[0]), y))
    parameters = [backend.asarray((weight,), device) for device in devices]
    guards = [backend.asarray(np.ones(1, np.float32), device) for device in devices]
    losses = []
    for _ in range(steps):
        loaded = [backend.split_and_load(x, devices) for x in (images, np.array(labels))]
        computed = [backend.launch(differentiate, *args) for args in zip(parameters, *loaded, strict=True)]
        losses.append(computed[0][0])
        sums = backend.allreduce([gradients for _, gradients in computed])
        del computed
        updated = [
            backend.launch(ops.sgd_while_finite, p, g, 0.1, guard)
            for p, g, guard in zip(parameters, sums, guards, strict=True)
        ]
        parameters, guards = [new for new, _ in updated], [guard for _, guard in updated]
        del sums, updated
    return losses, parameters[-1][0]


@pytest.mark.parametrize(
    ("devices", "arrays"),
    [
        # A loss and a parameter, and the guard that the next step needs: no gradient is in memory.
        (1, [3, 3, 3, 2]),
        # Devices meet in an exchange. The last's update and next gradients are one program; the sum is the first's.
        (3, [2, 4, 4, 4, 1]),
    ],
)
def test_a_training_step_on_a_device_is_one_program_and_gives_the_same_numbers(
    load: Load, programs: Programs, devices: int, arrays: list[int]
) -> None:
    found = []
    for variant in ("launch-compiled", "step-compiled"):
        programs.clear()
        backend = load(devices, variant)
        kept = train(backend)
        backend.waitall()
        enqueued = [number for device, number in programs if device == f"cpu:{devices}"]
        assert enqueued == ([2] * 2 * STEPS if variant == "launch-compiled" else arrays)
        found.append(backend.to_numpy(kept))
    (expected_losses, expected), (losses, weight) = found
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)
    assert losses[-1] < losses[0]


def ones(backend: Backend, device: int = 0) -> Array:
    return backend.asarray(np.ones(3, np.float32), backend.devices[device])


def test_a_launch_is_computed_whose_values_nobody_used_or_kept(load: Load, programs: Programs) -> None:
    backend = load()
    backend.launch(backend.ops.add, ones(backend), 1.0)
    backend.waitall()
    assert programs == [("cpu:1", 1)]


def test_nothing_is_enqueued_before_a_value_is_needed(load: Load, programs: Programs) -> None:
    """Its shape, dtype and device are known before."""
    backend = load(2)
    ops = backend.ops
    parts = backend.launch(ops.split, ones(backend, 1), [1, 2])
    assert [(part.shape, part.dtype, backend.device_of(part)) for part in parts] == [
        ((length,), np.float32, backend.devices[1]) for length in (1, 2)
    ]
    x = ones(backend)
    y = backend.launch(ops.multiply, backend.launch(ops.add, x, 1.0), 3.0)
    backend.wait(backend.asarray(np.ones(2), backend.devices[0]))
    (y,) = backend.allreduce([y])
    assert programs == []
    copied = backend.copy_to(y, backend.devices[1])
    assert programs == [("cpu:1", 1)]
    assert backend.to_numpy(copied).tolist() == [6, 6, 6]
    # What is there already needs no program.
    assert backend.to_numpy(y).tolist() == [6, 6, 6]
    assert len(programs) == 1


def test_a_step_ends_where_a_function_is_launched_again_and_has_a_longest_length(
    load: Load, programs: Programs
) -> None:
    from backends.jax.steps import MOST_LAUNCHES

    backend = load()
    ops = backend.ops
    x = ones(backend)
    for _ in range(3):
        for fn in (ops.add, ops.multiply, lambda a, b: ops.add(ops.multiply(a, b), b)):
            x = backend.launch(fn, x, 1.0)
    assert len(programs) == 2
    backend.waitall()
    assert len(programs) == 3
    x = ones(backend)
    for k in range(2 * MOST_LAUNCHES + 1):
        x = backend.launch(lambda x, k=float(k): ops.add(x, k), x)
    assert len(programs) == 5
    assert backend.to_numpy(x)[0] == 1 + sum(range(2 * MOST_LAUNCHES + 1))


def test_numbers_and_arrays_may_be_others_in_each_step(load: Load) -> None:
    backend = load()
    ops = backend.ops
    first, second = ones(backend), backend.launch(ops.add, ones(backend), 1.0)
    values = []
    for x, k in ((first, 2.0), (second, 2.0), (first, 3.0)):
        raised = backend.launch(ops.power, x, k)
        values.append(backend.launch(lambda a, b, c: ops.add(ops.add(a, b), c), raised, x, k))
    assert [value[0] for value in backend.to_numpy(tuple(values))] == [4, 8, 5]


def test_a_wrong_label_is_an_error_at_the_next_wait(load: Load, programs: Programs) -> None:
    backend = load()
    _, weight = train(backend, steps=1, labels=(0, 1, 2, 3))
    assert programs == []
    with pytest.raises(ComputationError, match="jax on cpu:1: ValueError: cross_entropy takes labels from 0 to 2"):
        backend.wait(weight)
    with pytest.raises(ComputationError, match="refuses further work"):
        backend.launch(backend.ops.relu, weight)


def test_shapes_that_do_not_fit_are_an_error_at_the_launch(load: Load, programs: Programs) -> None:
    backend = load()
    x = backend.launch(backend.ops.add, ones(backend), 1.0)
    with pytest.raises(ComputationError, match="jax on cpu:1"):
        backend.launch(backend.ops.matmul, x, x)
    assert programs == []


def test_values_of_two_devices_do_not_meet_in_a_launch(load: Load) -> None:
    backend = load(2)
    ops = backend.ops
    x, y = (backend.launch(ops.multiply, ones(backend, device), 2.0) for device in range(2))
    with pytest.raises(ComputationError, match="incompatible devices"):
        backend.wait(backend.launch(ops.add, x, y))


def test_a_unit_is_a_program_by_itself(load: Load, programs: Programs) -> None:
    backend = load()
    ops = backend.ops
    unit = ops.as_unit(lambda x: ops.add(ops.add(x, 1.0), 1.0))
    x = backend.launch(ops.multiply, ones(backend), 2.0)
    y = backend.launch(ops.relu, backend.launch(unit, x))
    assert len(programs) == 2
    assert backend.to_numpy(y)[0] == 4
    assert len(programs) == 3


def test_threads_record_steps_of_their_own(load: Load) -> None:
    backend = load()
    ops = backend.ops
    shared = backend.launch(ops.add, ones(backend), 1.0)
    found: dict[int, float] = {}

    def work(number: int) -> None:
        x = shared
        for _ in range(20):
            for fn in (ops.add, lambda a, k: ops.add(ops.multiply(a, k), 1.0)):
                x = backend.launch(fn, x, float(number % 2))
            if number == 3:
                # Ends the steps that the others record.
                backend.waitall()
        found[number] = float(backend.to_numpy(x)[0])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    # Even ones: times 0 and plus 1; odd ones: plus 1 twice.
    assert found == {0: 1.0, 1: 42.0, 2: 1.0, 3: 42.0}


def test_a_step_s_span_has_the_names_of_its_functions(load: Load, tmp_path: Path) -> None:
    backend = load()
    train(backend, steps=2)
    backend.waitall()
    path = tmp_path / "trace.json"
    with run_profiler(backend, path) as mark, mark(case_text("steps")):
        kept = train(backend, steps=2)
        backend.waitall()
        del kept
    found = profiler.timeline_of(read_trace(path))
    steps = named(found, "value_and_gradients + sgd_while_finite")
    assert [span.device for span in steps] == ["cpu:1"] * 2
    # By the last of its launches.
    assert [span.launched for span in steps] == [call.start for call in named(found, "launch sgd_while_finite")]
