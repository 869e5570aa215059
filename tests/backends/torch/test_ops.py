"""PyTorch's functions: gradients share memory with nothing, and PyTorch's own defaults stay out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Array, Backend, BackendError, ComputationError
from backends.arrays import tree_leaves

torch = pytest.importorskip("torch")

ops: Any = pytest.importorskip("backends.torch.ops")
from backends.torch.streams.sharing import check_apart, extent, overlap  # noqa: E402

Loss = Callable[..., Any]


@pytest.fixture
def backend(require: Callable[[str], None], engine: str) -> Backend:
    require("torch")
    return backends.load("torch", 2, "cpu", engine, 1)


def loaded(backend: Backend, *xs: Any) -> tuple[Array, ...]:
    return tuple(backend.asarray(x, backend.devices[0]) for x in xs)


def shifted(x: Any) -> Any:
    return ops.add(x, 1.0)


def both(p: Any) -> Any:
    return ops.add(ops.flatten(p[0]), ops.flatten(p[1]))


def weigh(x: Any) -> Any:
    return ops.total(ops.multiply(x, ops.add(x, 2.0)))


SHARING_LOSSES: dict[str, Loss] = {
    "views of a sum": lambda p: ops.total(both(p)),
    "views of a weighed sum": lambda p: weigh(both(p)),
    "an array and a view": lambda p: weigh(ops.add(ops.flatten(p[0]), ops.flatten(shifted(p[1])))),
    "a view and its own use": lambda p: weigh(ops.multiply(ops.flatten(p[0]), ops.flatten(ops.multiply(p[0], p[1])))),
    "one of two used": lambda p: weigh(ops.flatten(p[1])),
    "sums alone": lambda p: ops.add(ops.total(p[0]), ops.total(p[1])),
    "products": lambda p: weigh(ops.matmul(ops.flatten(p[0]), ops.flatten(p[1]))),
    "a sum of three": lambda p: weigh(ops.add(both(p), ops.flatten(p[0]))),
}


@pytest.mark.parametrize("loss", SHARING_LOSSES)
def test_announced_gradients_may_be_overwritten_at_once(loss: str) -> None:
    generator = torch.Generator().manual_seed(0)
    parameters = tuple(torch.rand(3, 3, 1, generator=generator) for _ in range(2))
    plain = [x.clone().requires_grad_() for x in parameters]
    SHARING_LOSSES[loss](plain).backward()
    expected = [torch.zeros_like(x) if x.grad is None else x.grad for x in plain]
    announced = {}

    def announce(path: tuple[int, ...], gradient: Any) -> None:
        announced[path] = gradient.clone()
        gradient.fill_(float("nan"))

    differentiate = ops.value_and_grad(SHARING_LOSSES[loss])
    differentiate.function(announce, parameters)
    for place, wanted in enumerate(expected):
        torch.testing.assert_close(announced.get((1, place), torch.zeros_like(wanted)), wanted)


@pytest.mark.parametrize("loss", SHARING_LOSSES)
def test_gradients_share_memory_with_nothing(loss: str) -> None:
    parameters = tuple(torch.ones(2, 2, 1) for _ in range(2))
    value, gradients = ops.value_and_grad(SHARING_LOSSES[loss])(parameters)
    check_apart((value, gradients, parameters))


@pytest.mark.parametrize("dimensions", [0, 1, 2, 3, 4])
def test_a_value_that_is_a_parameter_has_memory_of_its_own(dimensions: int) -> None:
    parameter = torch.ones((1,) * dimensions)
    value, gradients = ops.value_and_grad(lambda p: p[0].view(()))((parameter,))
    check_apart((value, gradients, parameter))
    assert (value.item(), gradients[0].item()) == (1, 1)


def test_gradients_of_views_are_summed_once(backend: Backend) -> None:
    parameters = loaded(backend, np.ones((2, 2, 2), np.float32), np.ones((2, 2, 2), np.float32))
    step = backend.launch(backend.ops.value_and_grad(lambda p: ops.total(ops.multiply(both(p), 8.0))), parameters)
    (sums,) = backend.allreduce([(step[1][0], step[1][1])])
    for found in backend.to_numpy(sums):
        np.testing.assert_array_equal(found, np.full((2, 2, 2), 8))


def test_one_array_may_be_several_parameters_and_a_constant_as_well(backend: Backend) -> None:
    x, unused = loaded(backend, np.float32([1, 2, 3]), np.ones((2, 0), np.float32))

    def loss(p: Any, constant: Any) -> Any:
        return ops.total(ops.multiply(ops.multiply(p[0], p[0]), ops.multiply(p[1], constant)))

    value, gradients = backend.to_numpy(backend.launch(backend.ops.value_and_grad(loss), (x, x, unused), x))
    assert value == 1 + 16 + 81
    np.testing.assert_array_equal(gradients[0], [2, 16, 54])
    np.testing.assert_array_equal(gradients[1], [1, 8, 27])
    assert gradients[2].shape == (2, 0)


def test_parameters_that_are_not_used_have_zeros(backend: Backend) -> None:
    x, y = loaded(backend, np.float32([1, 2]), np.float64(3))
    value, gradients = backend.to_numpy(
        backend.launch(backend.ops.value_and_grad(lambda p, z: ops.total(z)), (x, y), x)
    )
    assert value == 3
    assert [gradient.tolist() for gradient in gradients] == [[0, 0], 0]
    assert gradients[1].dtype == np.float64


def test_no_parameters_are_an_error(backend: Backend) -> None:
    (x,) = loaded(backend, np.float32([1]))
    with pytest.raises(ComputationError, match="empty tuple"):
        backend.to_numpy(backend.launch(backend.ops.value_and_grad(lambda p, z: ops.total(z)), (), x))


def test_gradients_have_a_name(backend: Backend) -> None:
    assert backend.ops.value_and_grad(lambda p: p).__name__ == "value_and_gradients"


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0, 2), (2, 1, 3), (0, 1, 2, 2)])
def test_arrays_are_flattened_from_the_second_dimension_on(backend: Backend, shape: tuple[int, ...]) -> None:
    (x,) = loaded(backend, np.zeros(shape, np.float32))
    if shape == ():
        with pytest.raises(BackendError):
            backend.to_numpy(backend.launch(ops.flatten, x))
        return
    found = backend.to_numpy(backend.launch(ops.flatten, x))
    assert found.shape == (shape[0], int(np.prod(shape[1:])))


@pytest.mark.parametrize("label", [-100, -1, 3, 2**40])
def test_a_label_of_no_class_is_an_error(backend: Backend, label: int) -> None:
    scores, labels = loaded(backend, np.ones((2, 3), np.float32), np.array([1, label]))
    with pytest.raises(ComputationError, match="out of bounds"):
        backend.to_numpy(backend.launch(ops.cross_entropy, scores, labels))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_labels_may_be_of_any_integer_dtype(backend: Backend, dtype: str) -> None:
    scores = np.zeros((4, 300), np.float32)
    scores[range(4), [1, 44, 299, 300 - 1]] = 1
    given, labels = loaded(backend, scores, np.array([1, 44, 43, 2]).astype(dtype))
    assert backend.to_numpy(backend.launch(ops.count_correct, given, labels)) == 2
    assert backend.to_numpy(backend.launch(ops.cross_entropy, given, labels)) == pytest.approx(
        4 * np.log(299 + np.e) - 2
    )


@pytest.mark.parametrize("good", [True, False])
@given(
    shapes=st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=3),
    doubles=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_updates_keep_shapes_and_dtypes(
    backend: Backend, good: bool, shapes: list[list[int]], doubles: list[bool]
) -> None:
    dtypes = [np.float64 if double else np.float32 for double in doubles]
    xs = tuple(np.ones(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=False))
    gradients = tuple(np.full_like(x, 2 if good else np.inf) for x in xs)
    good = good or not any(x.size for x in xs)
    own, by, guard = (backend.asarray(x, backend.devices[0]) for x in (xs, gradients, np.ones(1, np.float32)))
    updated, guard = backend.to_numpy(backend.launch(ops.sgd_while_finite, own, by, 0.25, guard))
    assert (guard.dtype, guard.shape, np.isnan(guard[0])) == (np.float32, (1,), not good)
    for found, x in zip(updated, xs, strict=True):
        assert (found.dtype, found.shape) == (x.dtype, x.shape)
        np.testing.assert_array_equal(found, np.full_like(x, 0.5 if good else 1))


NEW_MEMORY = {
    "matmul": lambda x: ops.matmul(x, x),
    "add": lambda x: ops.add(x, 0.0),
    "multiply": lambda x: ops.multiply(x, 1.0),
    "power": lambda x: ops.power(x, 1),
    "relu": ops.relu,
    "total": lambda x: ops.total(x[:, :1], 1),
    "total of one": lambda x: ops.total(x[0, 0]),
    "avg_pool2d": lambda x: ops.avg_pool2d(x.view(1, 1, 2, 2), 1),
    "count_correct": lambda x: ops.count_correct(x, torch.tensor([0, 1])),
    "concatenate": lambda x: ops.concatenate([x.view(-1)]),
    "to_host": ops.to_host,
    "zeros_like": ops.zeros_like,
    "sgd": lambda x: ops.sgd((x,), (x,), 0.0),
    "sgd_while_finite": lambda x: ops.sgd_while_finite((x,), (x,), 0.0, x.view(-1)[:1]),
}


@pytest.mark.parametrize("name", NEW_MEMORY)
def test_functions_that_say_so_give_new_memory(name: str) -> None:
    assert getattr(ops, name.split()[0]).new_memory
    x = torch.ones(2, 2)
    found: Any = NEW_MEMORY[name](x)
    for result in tree_leaves(found):
        assert not overlap([extent(result)], [extent(x)])


def test_functions_that_give_views_do_not_say_so() -> None:
    assert not hasattr(ops.split, "new_memory")
    assert not hasattr(ops.flatten, "new_memory")
