"""Operators at the edges of what they take, and descent, which stops for good at a gradient that is
not finite.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backends import Array, Backend, ComputationError, Ops
from backends.protocol import HostArray
from tests.backends.protocol.arrays import Load, assert_close, assert_equal

LABELS = ("uint8", "int32", "int64")


def on_device(backend: Backend, *values: HostArray) -> list[Array]:
    return [backend.asarray(value, backend.devices[-1]) for value in values]


def assert_fails(backend: Backend, fn: Callable[..., Array], *values: HostArray) -> None:
    with pytest.raises(ComputationError, match=backend.name):
        backend.to_numpy(backend.launch(fn, *on_device(backend, *values)))


@given(
    rows=st.integers(1, 5),
    classes=st.sampled_from([2, 10, 300]),
    dtype=st.sampled_from(LABELS),
    seed=st.integers(0, 9),
)
@pytest.mark.parametrize("floating", ["float32", "float64"])
def test_labels_of_every_integer_dtype_count(
    backend: Backend, rows: int, classes: int, dtype: str, seed: int, floating: str
) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((rows, classes)).astype(floating)
    labels = generator.integers(0, min(classes, np.iinfo(dtype).max + 1), rows).astype(dtype)
    loss = backend.to_numpy(
        backend.launch(backend.ops.cross_entropy, *on_device(backend, scores, labels))
    )
    assert (loss.dtype, loss.shape) == (scores.dtype, ())
    exact = scores.astype("float64")
    expected = (np.log(np.exp(exact).sum(axis=1)) - exact[np.arange(rows), labels]).sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)
    right = backend.launch(
        backend.ops.count_correct, *on_device(backend, scores, scores.argmax(1).astype("int64"))
    )
    assert backend.to_numpy(right) == rows
    found = backend.to_numpy(
        backend.launch(backend.ops.count_correct, *on_device(backend, scores, labels))
    )
    assert found.shape == ()
    assert found == np.count_nonzero(scores.argmax(1) == labels)


def test_a_label_that_only_looks_alike_in_a_short_dtype_is_wrong(backend: Backend) -> None:
    scores = np.zeros((2, 301), dtype=np.float32)
    scores[:, 300] = 1
    labels = np.array([300 % 256, 44], dtype=np.uint8)
    assert (
        backend.to_numpy(
            backend.launch(backend.ops.count_correct, *on_device(backend, scores, labels))
        )
        == 0
    )


@pytest.mark.parametrize(
    ("label", "dtype"),
    [(3, "int32"), (-1, "int64"), (-3, "int32"), (255, "uint8"), (-100, "int64"), (2**40, "int64")],
)
def test_a_label_of_no_class_counts_as_wrong_and_has_no_loss(
    backend: Backend, label: int, dtype: str
) -> None:
    values = np.float32([[0, 0, 1], [0, 0, 1]]), np.array([2, label], dtype=dtype)
    assert_equal(
        backend, backend.launch(backend.ops.count_correct, *on_device(backend, *values)), 1
    )
    assert_fails(backend, backend.ops.cross_entropy, *values)


def test_a_label_of_no_class_has_no_gradient(backend: Backend) -> None:
    differentiate = backend.ops.value_and_grad(
        lambda p, labels: backend.ops.cross_entropy(p[0], labels)
    )
    assert_fails(backend, differentiate, (ones(1, 3),), np.array([3]))


@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple))
def test_flattening_keeps_the_rows(backend: Backend, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    flat = backend.to_numpy(backend.launch(backend.ops.flatten, *on_device(backend, x)))
    np.testing.assert_array_equal(flat, x.reshape(shape[0], np.prod(shape[1:], dtype=int)))
    assert flat.shape == (shape[0], np.prod(shape[1:], dtype=int))


OPERATORS: dict[
    str, tuple[Callable[[Ops, Array, float], Array], Callable[[np.ndarray, float], np.ndarray]]
] = {
    "add": (lambda ops, x, number: ops.add(x, number), np.add),
    "multiply": (lambda ops, x, number: ops.multiply(x, number), np.multiply),
    "power": (lambda ops, x, number: ops.power(x, number), np.power),
    "relu": (lambda ops, x, _: ops.relu(x), lambda x, _: np.maximum(x, 0)),
    "total": (lambda ops, x, _: ops.total(x), lambda x, _: np.sum(x)),
    "total of the last axis": (
        lambda ops, x, _: ops.total(x, len(x.shape) - 1 if x.shape else None),
        lambda x, _: np.sum(x, -1 if x.shape else None),
    ),
}
"""What each does in the backend, and in NumPy."""
NUMBERS: tuple[Any, ...] = (2, 0.5, np.float32(0.5), np.float64(0.5), np.int64(2))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_beside_an_array_changes_no_dtype(backend: Backend, name: str, dtype: str) -> None:
    operator, in_numpy = OPERATORS[name]
    for shape, number in product([(), (3,), (2, 1)], NUMBERS):
        x = np.full(shape, 2, dtype=dtype)
        computed = backend.launch(
            lambda x, k=number: operator(backend.ops, x, k), *on_device(backend, x)
        )
        found, expected = backend.to_numpy(computed), np.asarray(in_numpy(x, float(number)))
        assert (found.dtype.name, found.shape) == (dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(shape, dtype)


def labels(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


MATRICES = ((), (2,), (2, 2), (1, 2, 2))
FITTING = (2, 2), (2, 2)
IMAGES = ones(1, 1, 4, 4)
TWO_DTYPES = ones(3, 3), ones(3, 3, dtype="float64")
ELEMENTWISE = [(ones(2), ones(3)), (ones(2, 3), ones(2)), TWO_DTYPES]
LABELLED = [
    *((ones(3, 4), labels(*shape)) for shape in ((), (1,), (2,), (4,), (3, 1), (1, 3))),
    *((ones(*shape), labels(1)) for shape in ((), (4,), (3, 1), (1, 4, 2))),
    (ones(3, 4, 2), labels(3, 2)),
]
MISFITS: dict[str, list[tuple[Any, ...]]] = {
    "matmul": [
        *((ones(*a), ones(*b)) for a, b in product(MATRICES, repeat=2) if (a, b) != FITTING),
        TWO_DTYPES,
    ],
    "conv2d": [
        *((IMAGES, ones(2, 1, 2, 2), ones(*bias)) for bias in ((), (1,), (3,), (2, 1), (1, 2))),
        *(
            (ones(*images), ones(2, 2, 2, 2), ones(2))
            for images in ((2, 4, 4), (1, 1, 4, 4), (1, 4, 4, 4))
        ),
        *(
            (ones(1, 1, 2, 4), ones(*filters), ones(2))
            for filters in ((2, 1, 3, 3), (2, 1, 2), (2, 2))
        ),
        (ones(1, 1, 4), ones(2, 1, 2), ones(2)),
    ],
    "avg_pool2d": [
        (IMAGES, 0),
        *((ones(*shape), 2) for shape in ((4, 4), (1, 4, 4), (1, 1, 1, 4))),
    ],
    "total": [(ones(), 0), (ones(), 1), (ones(2), 1)],
    "add": ELEMENTWISE,
    "multiply": ELEMENTWISE,
    "flatten": [(ones(),)],
    "split": [(ones(2), [3, -1]), *((ones(*shape), [1, 2]) for shape in ((), (2,), (4,), (3, 1)))],
    "concatenate": [((ones(), ones()),), ((ones(1, 2),),), ((ones(2), ones(1, 2)),)],
    "cross_entropy": LABELLED,
    "count_correct": LABELLED,
}
"""Arguments that do not fit: arrays, and what may follow them."""


@pytest.mark.parametrize(
    ("name", "arguments"), [(name, one) for name in MISFITS for one in MISFITS[name]]
)
def test_shapes_that_do_not_fit_are_errors(
    load: Load, name: str, arguments: tuple[Any, ...]
) -> None:
    arrays = [one for one in arguments if not isinstance(one, int | list)]
    backend, rest = load(1), arguments[len(arrays) :]
    assert_fails(backend, lambda *x: getattr(backend.ops, name)(*x, *rest), *arrays)


def test_gradients_are_of_a_number_and_by_a_parameter(load: Load) -> None:
    for x in (ones(1), ones(2, 2)):
        backend = load(1)
        assert_fails(backend, backend.ops.value_and_grad(lambda p: p[0]), (x,))
    backend = load(1)
    assert_fails(
        backend, backend.ops.value_and_grad(lambda _, x: backend.ops.total(x)), (), ones(2)
    )


def test_pooling_drops_what_is_left_over(backend: Backend) -> None:
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    pooled = backend.launch(
        lambda images: backend.ops.avg_pool2d(images, 2), *on_device(backend, x)
    )
    np.testing.assert_array_equal(backend.to_numpy(pooled)[0, 0], [[3, 5], [13, 15]])


Tensor: TypeAlias = tuple[str, tuple[int, ...]]
Parameters: TypeAlias = tuple[np.ndarray, ...]
tensors = st.tuples(
    st.sampled_from(["float32", "float64"]), st.lists(st.integers(1, 3), max_size=4).map(tuple)
)
GUARDED = pytest.mark.parametrize("guarded", [False, True])


def uniform(drawn: Sequence[Tensor], seed: int) -> Parameters:
    generator = np.random.default_rng(seed)
    return tuple(
        np.asarray(generator.uniform(-1, 1, shape)).astype(dtype) for dtype, shape in drawn
    )


def update(
    backend: Backend,
    guarded: bool,
    parameters: Parameters,
    gradients: Parameters,
    rate: float = 0.5,
) -> Parameters:
    """Descend by one of the two operations."""
    p, g, guard = on_device(backend, parameters, gradients, ones(1))
    if not guarded:
        return backend.to_numpy(backend.launch(backend.ops.sgd, p, g, rate))
    updated, guard = backend.to_numpy(
        backend.launch(backend.ops.sgd_while_finite, p, g, rate, guard)
    )
    assert (guard.dtype, guard.tolist()) == (np.float32, [1])
    return updated


@GUARDED
@given(drawn=st.lists(tensors, min_size=1, max_size=5), seed=st.integers(0, 99))
def test_parameters_keep_shapes_and_dtypes(
    backend: Backend, guarded: bool, drawn: list[Tensor], seed: int
) -> None:
    parameters, gradients = uniform(drawn, seed), uniform(drawn, seed + 1)
    expected = [np.asarray(a - b / 2, a.dtype) for a, b in zip(parameters, gradients, strict=True)]
    assert_close(update(backend, guarded, parameters, gradients), expected)


@GUARDED
@pytest.mark.parametrize("count", [1, 49, 50, 51, 59, 60, 61, 130])
def test_any_number_of_parameters_is_updated(backend: Backend, guarded: bool, count: int) -> None:
    parameters = tuple(np.full((2, 3), k, dtype=np.float32) for k in range(count))
    found = update(backend, guarded, parameters, (ones(2, 3),) * count)
    assert_close(found, [parameter - np.float32(0.5) for parameter in parameters])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing_from_then_on(
    backend: Backend, dtype: str, bad: float
) -> None:
    parameters, broken = ((np.array(number, dtype), ones(2, 2)) for number in (1, bad))
    value, guard = on_device(backend, parameters, ones(1))
    guards = [guard]
    for gradients in (parameters, broken, parameters):
        result = backend.launch(
            backend.ops.sgd_while_finite, value, *on_device(backend, gradients), 0.5, guards[-1]
        )
        value = result[0]
        guards.append(result[1])
    assert_close(backend.to_numpy(value), [np.asarray(x / 2, x.dtype) for x in parameters])
    found = [backend.to_numpy(guard) for guard in guards]
    assert [(guard.dtype, guard.shape) for guard in found] == [(np.float32, (1,))] * 4
    # The guard is not consumed.
    np.testing.assert_array_equal(np.concatenate(found), [1, 1, np.nan, np.nan])


@GUARDED
@pytest.mark.parametrize("rate", [1, 0.5, np.float32(0.5), np.float64(0.5), np.int64(1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rate_is_a_number_of_python_s_or_numpy_s(
    backend: Backend, guarded: bool, rate: float, dtype: str
) -> None:
    of_ones = ones(3, dtype=dtype), ones(dtype=dtype)
    found = update(backend, guarded, of_ones, of_ones, rate)
    assert_close(found, [np.asarray(x - float(rate), x.dtype) for x in of_ones])


@GUARDED
@given(
    own=tensors,
    other=tensors,
    before=st.lists(tensors, max_size=2),
    after=st.lists(tensors, max_size=2),
)
def test_a_gradient_of_another_shape_or_dtype_is_an_error(
    load: Load, guarded: bool, own: Tensor, other: Tensor, before: list[Tensor], after: list[Tensor]
) -> None:
    assume(own != other)
    refuse(
        load(1), guarded, uniform([*before, own, *after], 1), uniform([*before, other, *after], 2)
    )


@GUARDED
@given(drawn=st.lists(tensors, min_size=1, max_size=3), count=st.integers(0, 4))
def test_gradients_of_another_number_are_an_error(
    load: Load, guarded: bool, drawn: list[Tensor], count: int
) -> None:
    assume(count != len(drawn))
    refuse(
        load(1), guarded, uniform(drawn, 1), uniform([*drawn, *drawn, *drawn, *drawn][:count], 2)
    )


def refuse(backend: Backend, guarded: bool, parameters: Parameters, gradients: Parameters) -> None:
    with pytest.raises(ComputationError, match=backend.name):
        update(backend, guarded, parameters, gradients)


@GUARDED
def test_updates_may_be_made_within_a_launched_function(backend: Backend, guarded: bool) -> None:
    ops = backend.ops

    def step(parameters: Array, x: Array, guard: Array) -> Array:
        _, gradients = ops.value_and_grad(lambda p, x: ops.total(ops.multiply(p[0], x)))(
            parameters, x
        )
        if guarded:
            return ops.sgd_while_finite(parameters, gradients, 0.5, guard)
        return ops.sgd(parameters, gradients, 0.5), guard

    value, x, guard = on_device(backend, (ones(),), ones(), ones(1))
    for _ in range(4):
        result = backend.launch(step, value, x, guard)
        value, guard = result[0], result[1]
    assert_close(backend.to_numpy(value), [np.array(-1, dtype=np.float32)])


def test_squares_that_float64_can_hold_are_finite(backend: Backend) -> None:
    loaded = on_device(backend, (np.ones(2),), (np.full(2, 1e30),), (ones(1),))
    descend = backend.ops.sgd_while_finite
    updated, guard = backend.to_numpy(
        backend.launch(lambda p, g, one: descend(p, g, 1e-30, one[0]), *loaded)
    )
    np.testing.assert_allclose(updated[0], [0, 0], atol=1e-12)
    np.testing.assert_array_equal(guard, [1])
