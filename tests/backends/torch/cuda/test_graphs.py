"""A training step replayed from CUDA graphs, on made-up GPUs: the same numbers, no races, and
memory of its own.
"""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import backends
from backends import Backend, ComputationError
from backends.torch.cuda.graphs import ISSUED_AS_USUAL, MAX_CALLS
from parallel_core.training.batches import Settings
from tests.backends.protocol.arrays import assert_equal, computed, full
from tests.backends.protocol.training import losses

pytestmark = pytest.mark.parametrize("engine", ["async"])

Load = Callable[..., tuple[Backend, Any]]
REPLAY = ("graph-replay",)
GPUS = pytest.mark.parametrize(
    "names", ["gpu:0", "gpu:1,gpu:0", "gpu:0/0,gpu:0/1", "gpu:0/0,gpu:1,gpu:0/1"]
)


@GPUS
def test_a_training_that_is_replayed_gives_numpy_s_losses(
    on_made_up_gpus: Load, names: str
) -> None:
    # The last batch of an epoch is a short one, and shares are uneven.
    images, settings = 50, Settings(4, 19)
    backend, cuda = on_made_up_gpus(names, variants=REPLAY)
    in_numpy = losses(backends.load("numpy", 1, threads_per_device=1), images, settings)
    np.testing.assert_allclose(losses(backend, images, settings), in_numpy, rtol=1e-4)
    assert cuda.races == []
    # A single device exchanges nothing, so its step is one graph. Otherwise each device has a graph
    # of the gradient and one of the update. Whole batches and the last ones have different graphs.
    device_count = len(backend.devices)
    graphs_of_step = 1 if device_count == 1 else 2 * device_count
    assert len(cuda.graphs) == 2 * graphs_of_step
    for graph in cuda.graphs:
        assert graph.replays >= 1


def squares(backend: Backend) -> Any:
    """Make the gradient of the weighted sum of a parameter's squares."""
    return backend.ops.value_and_grad(
        lambda parameters, x: backend.ops.total(parameters[0] * parameters[0] * x)
    )


def test_other_shapes_types_and_numbers_are_other_graphs(on_made_up_gpus: Load) -> None:
    backend, cuda = on_made_up_gpus("gpu:0", variants=REPLAY)
    (device,) = backend.devices
    different_calls = (("f4", 1, 0.5), ("f8", 1, 0.5), ("f4", 3, 0.5), ("f4", 3, 2))
    for _ in range(ISSUED_AS_USUAL + 2):
        for dtype, length, rate in different_calls:
            parameter = backend.asarray(np.full(length, 7, dtype), device)
            gradient = backend.asarray(np.full(length, 2, dtype), device)
            (updated,) = computed(backend, backend.ops.sgd, (parameter,), (gradient,), rate)
            np.testing.assert_array_equal(updated, np.full(length, 7 - 2 * rate, dtype))
    # Each of the four different calls has a graph of its own.
    assert [graph.replays for graph in cuda.graphs] == [2, 2, 2, 2]


def test_what_is_called_differently_each_time_is_issued_as_usual(on_made_up_gpus: Load) -> None:
    backend, cuda = on_made_up_gpus("gpu:0", variants=REPLAY)
    parameter, gradient = full(backend, 1, 1), full(backend, 2, 1)

    def update(rate: float) -> None:
        (updated,) = computed(backend, backend.ops.sgd, (parameter,), (gradient,), rate)
        assert updated == 1 - 2 * rate

    for different_rate in range(MAX_CALLS):
        update(different_rate)
    # This rate comes when the most calls that may get a graph have been counted.
    for _ in range(5):
        update(0.5)
    assert cuda.graphs == []

    # The rate 1 was among the first different ones. After that call one more is issued as usual.
    for _ in range(5):
        update(1)
    assert [graph.replays for graph in cuda.graphs] == [4]


@pytest.mark.parametrize(("variants", "graph_count"), [((), 0), (REPLAY, 1)])
def test_only_steps_are_recorded_and_only_where_asked(
    on_made_up_gpus: Load, variants: tuple[str, ...], graph_count: int
) -> None:
    backend, cuda = on_made_up_gpus("gpu:0", variants=variants)
    gradient, x = squares(backend), full(backend, 1, 1)
    for _ in range(5):
        # The addition is no step, so it never gets a graph.
        backend.launch(backend.ops.add, x, x)
        backend.launch(gradient, (x,), x)
    backend.waitall()
    assert len(cuda.graphs) == graph_count


@GPUS
def test_a_function_that_is_let_go_lets_its_graphs_go(on_made_up_gpus: Load, names: str) -> None:
    backend, cuda = on_made_up_gpus(names, variants=REPLAY)
    gradient, x = squares(backend), full(backend, 1, 1)
    for _ in range(4):
        backend.launch(gradient, (x,), x)
    backend.waitall()
    (graph,) = cuda.graphs
    memories = {access.part.memory for access in graph.accesses}

    def has_users() -> bool:
        """Return whether a tensor is left in the memory that the graph works on."""
        return any(cuda.users[memory] > 0 for memory in memories)

    assert has_users()
    # The made-up CUDA keeps the graph itself, whose operators keep their tensors.
    graph.operators.clear()
    del gradient
    gc.collect()
    backend.waitall()
    assert not has_users()


def test_a_unit_is_one_launch_from_the_third_on(on_made_up_gpus: Load) -> None:
    backend, cuda = on_made_up_gpus("cpu:1,gpu:0")
    unit = backend.ops.as_unit(lambda x: backend.ops.add(backend.ops.multiply(x, x), 1))
    for device in range(2):
        for number in range(5):
            x = full(backend, number, 1, device=device)
            assert computed(backend, unit, x) == number**2 + 1
    # Only the GPU has a graph.
    assert [graph.replays for graph in cuda.graphs] == [5 - ISSUED_AS_USUAL]


@pytest.mark.parametrize("variants", [(), REPLAY])
def test_units_within_a_gradient_and_within_a_unit_are_issued_as_usual(
    on_made_up_gpus: Load, variants: tuple[str, ...]
) -> None:
    backend, _ = on_made_up_gpus("gpu:0", variants=variants)
    ops = backend.ops
    square = ops.as_unit(lambda x: x * x)
    fourth_power = ops.as_unit(lambda x: square(square(x)))
    differentiate = ops.value_and_grad(lambda p: ops.total(square(p[0])))
    for number in range(ISSUED_AS_USUAL + 3):
        x = full(backend, number, 1)
        assert computed(backend, fourth_power, x) == number**4
        value, (slope,) = computed(backend, differentiate, (x,))
        assert value == number**2
        assert slope == 2 * number


@pytest.mark.parametrize("variants", [(), REPLAY])
@pytest.mark.parametrize("label", [-1, 2, 300])
@pytest.mark.parametrize("source", ["loaded", "computed"])
def test_a_label_of_no_class_fails_and_makes_a_replayed_loss_nan(
    on_made_up_gpus: Load, variants: tuple[str, ...], label: int, source: str
) -> None:
    backend, cuda = on_made_up_gpus("gpu:0", variants=variants)
    (device,) = backend.devices
    gradient = backend.ops.value_and_grad(
        lambda parameters, labels: backend.ops.cross_entropy(parameters[0], labels)
    )
    x = full(backend, 0, 2, 2)

    def loss(last: int) -> Any:
        labels = backend.asarray(np.int64([0, last]), device)
        if source == "computed":
            labels = backend.launch(lambda y: y + 0, labels)
        value, _ = computed(backend, gradient, (x,), labels)
        return value

    expected_loss = 2 * np.log(2)
    for right_label in (0, 1, 0, 1):
        np.testing.assert_allclose(loss(right_label), expected_loss, rtol=1e-6)
    if variants:
        assert np.isnan(loss(label))
        np.testing.assert_allclose(loss(1), expected_loss, rtol=1e-6)
        assert cuda.graphs
    else:
        with pytest.raises(
            ComputationError, match=f"IndexError: labels are from 0 to 1, and there is {label}"
        ):
            loss(label)


@GPUS
def test_what_cannot_be_recorded_is_said(on_made_up_gpus: Load, names: str) -> None:
    backend, cuda = on_made_up_gpus(names, variants=REPLAY)
    # `item` asks the GPU for a number.
    asks = backend.ops.value_and_grad(lambda parameters, x: parameters[0].sum() * x.sum().item())
    x = full(backend, 1, 1, device=-1)
    for _ in range(ISSUED_AS_USUAL):
        backend.wait(backend.launch(asks, (x,), x))
    streams_before = [cuda.current_stream(gpu) for gpu in range(2)]
    with pytest.raises(
        ComputationError, match=r"RuntimeError: .* not permitted when stream is capturing"
    ):
        backend.wait(backend.launch(asks, (x,), x))
    # Whoever comes after does not issue to the stream that was to be recorded.
    assert [cuda.current_stream(gpu) for gpu in range(2)] == streams_before


@GPUS
def test_gradients_that_are_replayed_share_memory_with_nothing(
    on_made_up_gpus: Load, names: str
) -> None:
    backend, cuda = on_made_up_gpus(names, variants=REPLAY)
    device = backend.devices[-1]
    differentiate = backend.ops.value_and_grad(
        lambda parameters, x: backend.ops.total((parameters[0] + parameters[1]) * x)
    )

    ones, twos, nines = (full(backend, number, 2, 2, device=-1) for number in (1, 2, 9))
    results = [
        backend.launch(differentiate, (ones, ones), twos) for _ in range(ISSUED_AS_USUAL + 2)
    ]
    for result in results:
        value, first_gradient, second_gradient = result[0], result[1][0], result[1][1]
        backend.wait(backend.copy_to(nines, device, out=first_gradient))
        assert_equal(backend, value, 16)
        assert_equal(backend, second_gradient, np.full((2, 2), 2))
    for x, number in ((ones, 1), (twos, 2), (nines, 9)):
        assert_equal(backend, x, np.full((2, 2), number))
    assert cuda.races == []
