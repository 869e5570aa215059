"""Operators at the edges of what they take, and descent, which stops for good at a gradient that is
not finite.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backends import Array, Backend, ComputationError, Ops
from backends.protocol import HostArray
from tests.backends.protocol.arrays import Load, assert_close, computed

LABELS = ("uint8", "int32", "int64")


def on_device(backend: Backend, *values: HostArray) -> list[Array]:
    """Load arrays on the last device."""
    return [backend.asarray(value, backend.devices[-1]) for value in values]


def applied(backend: Backend, fn: Callable[..., Array], *values: HostArray) -> Any:
    """Launch a function of arrays on the last device, and return its result as NumPy."""
    return computed(backend, fn, *on_device(backend, *values))


def assert_fails(backend: Backend, fn: Callable[..., Array], *values: HostArray) -> None:
    """Assert that a launched function fails as a computation."""
    with pytest.raises(ComputationError, match=backend.name):
        applied(backend, fn, *values)


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
    ops, generator = backend.ops, np.random.default_rng(seed)
    scores = generator.standard_normal((rows, classes)).astype(floating)
    most_classes = min(classes, np.iinfo(dtype).max + 1)
    labels = generator.integers(0, most_classes, rows).astype(dtype)
    right_labels = scores.argmax(1).astype("int64")

    loss = applied(backend, ops.cross_entropy, scores, labels)
    correct = applied(backend, ops.count_correct, scores, labels)
    all_correct = applied(backend, ops.count_correct, scores, right_labels)

    assert (loss.dtype, loss.shape) == (scores.dtype, ())
    exact_scores = scores.astype("float64")
    log_sums = np.log(np.exp(exact_scores).sum(axis=1))
    scores_at_labels = exact_scores[np.arange(rows), labels]
    expected_loss = (log_sums - scores_at_labels).sum()
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5, atol=1e-5)
    assert all_correct == rows
    assert correct.shape == ()
    assert correct == np.count_nonzero(right_labels == labels)


def test_a_label_that_only_looks_alike_in_a_short_dtype_is_wrong(backend: Backend) -> None:
    right_class = 300
    scores = np.zeros((2, 301), dtype=np.float32)
    scores[:, right_class] = 1
    # The labels are what the right class would be as a uint8.
    labels = np.full(2, right_class % 256, dtype=np.uint8)
    correct = applied(backend, backend.ops.count_correct, scores, labels)
    assert correct == 0


@pytest.mark.parametrize(
    ("label", "dtype"),
    [(3, "int32"), (-1, "int64"), (-3, "int32"), (255, "uint8"), (-100, "int64"), (2**40, "int64")],
)
def test_a_label_of_no_class_counts_as_wrong_and_has_no_loss(
    backend: Backend, label: int, dtype: str
) -> None:
    scores, labels = np.float32([[0, 0, 1], [0, 0, 1]]), np.array([2, label], dtype=dtype)
    correct = applied(backend, backend.ops.count_correct, scores, labels)
    assert correct == 1
    assert_fails(backend, backend.ops.cross_entropy, scores, labels)


def test_a_label_of_no_class_has_no_gradient(backend: Backend) -> None:
    differentiate = backend.ops.value_and_grad(
        lambda p, labels: backend.ops.cross_entropy(p[0], labels)
    )
    assert_fails(backend, differentiate, (ones(1, 3),), np.array([3]))


@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple))
def test_flattening_keeps_the_rows(backend: Backend, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    flat = applied(backend, backend.ops.flatten, x)
    rows, columns = shape[0], np.prod(shape[1:], dtype=int)
    assert flat.shape == (rows, columns)
    np.testing.assert_array_equal(flat, x.reshape(rows, columns))


class Operator(NamedTuple):
    """An operator of an array and a number, some of which ignore the number."""

    of_backend: Callable[[Ops, Array, float], Array]
    in_numpy: Callable[[np.ndarray, float], np.ndarray]


def total_of_last_axis(ops: Ops, x: Array, _: float) -> Array:
    """Add up an array over its last axis, or whole if it has none."""
    axes = len(x.shape)
    return ops.total(x, axes - 1 if axes else None)


def sum_of_last_axis(x: np.ndarray, _: float) -> np.ndarray:
    """Add up an array of NumPy's in the same way."""
    return np.sum(x, -1 if x.shape else None)


OPERATORS: dict[str, Operator] = {
    "add": Operator(lambda ops, x, number: ops.add(x, number), np.add),
    "multiply": Operator(lambda ops, x, number: ops.multiply(x, number), np.multiply),
    "power": Operator(lambda ops, x, number: ops.power(x, number), np.power),
    "relu": Operator(lambda ops, x, _: ops.relu(x), lambda x, _: np.maximum(x, 0)),
    "total": Operator(lambda ops, x, _: ops.total(x), lambda x, _: np.sum(x)),
    "total of the last axis": Operator(total_of_last_axis, sum_of_last_axis),
}
NUMBERS: tuple[Any, ...] = (2, 0.5, np.float32(0.5), np.float64(0.5), np.int64(2))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_number_beside_an_array_changes_no_dtype(backend: Backend, name: str, dtype: str) -> None:
    operator = OPERATORS[name]
    for shape, number in product([(), (3,), (2, 1)], NUMBERS):
        x = np.full(shape, 2, dtype=dtype)

        def apply(x: Array, number: float = number) -> Array:
            return operator.of_backend(backend.ops, x, number)

        result = applied(backend, apply, x)
        expected = np.asarray(operator.in_numpy(x, float(number)))
        assert result.dtype.name == dtype
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Make an array of ones."""
    return np.ones(shape, dtype)


def labels(*shape: int) -> np.ndarray:
    """Make labels that are all of class 0."""
    return np.zeros(shape, np.int64)


IMAGES = ones(1, 1, 4, 4)
TWO_DTYPES = ones(3, 3), ones(3, 3, dtype="float64")
ELEMENTWISE = [(ones(2), ones(3)), (ones(2, 3), ones(2)), TWO_DTYPES]


def no_matrices() -> Iterator[tuple[Any, ...]]:
    """Yield factors of which one is no matrix."""
    shapes = ((), (2,), (2, 2), (1, 2, 2))
    for shape, other_shape in product(shapes, repeat=2):
        if (len(shape), len(other_shape)) != (2, 2):
            yield ones(*shape), ones(*other_shape)
    yield TWO_DTYPES


def no_convolutions() -> Iterator[tuple[Any, ...]]:
    """Yield images, filters and a bias of which one does not fit the others."""
    for bias in ((), (1,), (3,), (2, 1), (1, 2)):
        yield IMAGES, ones(2, 1, 2, 2), ones(*bias)
    for images in ((2, 4, 4), (1, 1, 4, 4), (1, 4, 4, 4)):
        yield ones(*images), ones(2, 2, 2, 2), ones(2)
    for filters in ((2, 1, 3, 3), (2, 1, 2), (2, 2)):
        yield ones(1, 1, 2, 4), ones(*filters), ones(2)
    yield ones(1, 1, 4), ones(2, 1, 2), ones(2)


def no_pools() -> Iterator[tuple[Any, ...]]:
    """Yield images and a width that does not divide them."""
    yield IMAGES, 0
    for images in ((4, 4), (1, 4, 4), (1, 1, 1, 4)):
        yield ones(*images), 2


def no_parts() -> Iterator[tuple[Any, ...]]:
    """Yield what cannot be split into parts of these lengths."""
    yield ones(2), [3, -1]
    for shape in ((), (2,), (4,), (3, 1)):
        yield ones(*shape), [1, 2]


def no_labelled_scores() -> Iterator[tuple[Any, ...]]:
    """Yield scores and labels of which each row has not one."""
    for shape in ((), (1,), (2,), (4,), (3, 1), (1, 3)):
        yield ones(3, 4), labels(*shape)
    for shape in ((), (4,), (3, 1), (1, 4, 2)):
        yield ones(*shape), labels(1)
    yield ones(3, 4, 2), labels(3, 2)


MISFITS: dict[str, Iterable[tuple[Any, ...]]] = {
    "matmul": no_matrices(),
    "conv2d": no_convolutions(),
    "avg_pool2d": no_pools(),
    "total": [(ones(), 0), (ones(), 1), (ones(2), 1)],
    "add": ELEMENTWISE,
    "multiply": ELEMENTWISE,
    "flatten": [(ones(),)],
    "split": no_parts(),
    "concatenate": [((ones(), ones()),), ((ones(1, 2),),), ((ones(2), ones(1, 2)),)],
    "cross_entropy": no_labelled_scores(),
    "count_correct": no_labelled_scores(),
}
"""Arguments that do not fit: arrays, and in some ops numbers or a list behind them."""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(name, arguments) for name in MISFITS for arguments in MISFITS[name]],
)
def test_shapes_that_do_not_fit_are_errors(
    load: Load, name: str, arguments: tuple[Any, ...]
) -> None:
    arrays = [argument for argument in arguments if not isinstance(argument, int | list)]
    further_arguments = arguments[len(arrays) :]
    backend = load(1)
    op = getattr(backend.ops, name)
    assert_fails(backend, lambda *x: op(*x, *further_arguments), *arrays)


def test_gradients_are_of_a_number_and_by_a_parameter(load: Load) -> None:
    for x in (ones(1), ones(2, 2)):
        backend = load(1)
        assert_fails(backend, backend.ops.value_and_grad(lambda p: p[0]), (x,))
    backend = load(1)
    without_parameters = backend.ops.value_and_grad(lambda _, x: backend.ops.total(x))
    assert_fails(backend, without_parameters, (), ones(2))


def test_pooling_drops_what_is_left_over(backend: Backend) -> None:
    x = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5)
    pooled = applied(backend, lambda images: backend.ops.avg_pool2d(images, 2), x)
    np.testing.assert_array_equal(pooled[0, 0], [[3, 5], [13, 15]])


Tensor: TypeAlias = tuple[str, tuple[int, ...]]
Parameters: TypeAlias = tuple[np.ndarray, ...]
tensors = st.tuples(
    st.sampled_from(["float32", "float64"]), st.lists(st.integers(1, 3), max_size=4).map(tuple)
)
GUARDED = pytest.mark.parametrize("guarded", [False, True])


def uniform(drawn: Sequence[Tensor], seed: int) -> Parameters:
    """Draw arrays of these dtypes and shapes."""
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
    """Return the parameters after a step by `sgd_while_finite` if it is guarded, else by `sgd`."""
    p, g, guard = on_device(backend, parameters, gradients, ones(1))
    if not guarded:
        return computed(backend, backend.ops.sgd, p, g, rate)
    updated, new_guard = computed(backend, backend.ops.sgd_while_finite, p, g, rate, guard)
    assert (new_guard.dtype, new_guard.tolist()) == (np.float32, [1])
    return updated


@GUARDED
@given(drawn=st.lists(tensors, min_size=1, max_size=5), seed=st.integers(0, 99))
def test_parameters_keep_shapes_and_dtypes(
    backend: Backend, guarded: bool, drawn: list[Tensor], seed: int
) -> None:
    parameters, gradients = uniform(drawn, seed), uniform(drawn, seed + 1)
    expected = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        expected.append(np.asarray(parameter - gradient / 2, parameter.dtype))
    assert_close(update(backend, guarded, parameters, gradients), expected)


@GUARDED
@pytest.mark.parametrize("count", [1, 49, 50, 51, 59, 60, 61, 130])
def test_any_number_of_parameters_is_updated(backend: Backend, guarded: bool, count: int) -> None:
    parameters = tuple(np.full((2, 3), k, dtype=np.float32) for k in range(count))
    found = update(backend, guarded, parameters, (ones(2, 3),) * count)
    assert_close(found, [parameter - np.float32(0.5) for parameter in parameters])


@pytest.mark.parametrize(
    ("dtype", "bad"),
    [
        *product(["float32", "float64"], [np.nan, np.inf, -np.inf]),
        # Its square is too large for the dtype.
        ("float32", 1e30),
    ],
)
def test_a_gradient_that_is_not_finite_changes_nothing_from_then_on(
    backend: Backend, dtype: str, bad: float
) -> None:
    parameters = finite_gradients = np.array(1, dtype), ones(2, 2)
    broken_gradients = np.array(bad, dtype), ones(2, 2)
    updated, guard = on_device(backend, parameters, ones(1))
    guards = [guard]

    for gradients in (finite_gradients, broken_gradients, finite_gradients):
        (loaded_gradients,) = on_device(backend, gradients)
        result = backend.launch(
            backend.ops.sgd_while_finite, updated, loaded_gradients, 0.5, guards[-1]
        )
        updated = result[0]
        guards.append(result[1])

    # Only the first step has changed them.
    expected = [np.asarray(parameter / 2, parameter.dtype) for parameter in parameters]
    assert_close(backend.to_numpy(updated), expected)
    guards_in_numpy = [backend.to_numpy(guard) for guard in guards]
    for guard in guards_in_numpy:
        assert guard.dtype == np.float32
        assert guard.shape == (1,)
    # Guards are not consumed, so the earlier ones can be read.
    np.testing.assert_array_equal(np.concatenate(guards_in_numpy), [1, 1, np.nan, np.nan])


@GUARDED
@pytest.mark.parametrize("rate", [1, 0.5, np.float32(0.5), np.float64(0.5), np.int64(1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rate_is_a_number_of_python_s_or_numpy_s(
    backend: Backend, guarded: bool, rate: float, dtype: str
) -> None:
    parameters = gradients = ones(3, dtype=dtype), ones(dtype=dtype)
    updated = update(backend, guarded, parameters, gradients, rate)
    assert_close(updated, [np.asarray(x - float(rate), x.dtype) for x in parameters])


@GUARDED
@given(
    tensor=tensors,
    other_tensor=tensors,
    before=st.lists(tensors, max_size=2),
    after=st.lists(tensors, max_size=2),
)
def test_a_gradient_of_another_shape_or_dtype_is_an_error(
    load: Load,
    guarded: bool,
    tensor: Tensor,
    other_tensor: Tensor,
    before: list[Tensor],
    after: list[Tensor],
) -> None:
    assume(tensor != other_tensor)
    parameters = uniform([*before, tensor, *after], seed=1)
    gradients = uniform([*before, other_tensor, *after], seed=2)
    refuse(load(1), guarded, parameters, gradients)


@GUARDED
@given(drawn=st.lists(tensors, min_size=1, max_size=3), count=st.integers(0, 4))
def test_gradients_of_another_number_are_an_error(
    load: Load, guarded: bool, drawn: list[Tensor], count: int
) -> None:
    assume(count != len(drawn))
    drawn_repeatedly = drawn * 4
    gradients = uniform(drawn_repeatedly[:count], seed=2)
    refuse(load(1), guarded, uniform(drawn, seed=1), gradients)


def refuse(backend: Backend, guarded: bool, parameters: Parameters, gradients: Parameters) -> None:
    """Assert that an update fails as a computation."""
    with pytest.raises(ComputationError, match=backend.name):
        update(backend, guarded, parameters, gradients)


@GUARDED
def test_updates_may_be_made_within_a_launched_function(backend: Backend, guarded: bool) -> None:
    ops = backend.ops
    differentiate = ops.value_and_grad(lambda p, x: ops.total(ops.multiply(p[0], x)))

    def step(parameters: Array, x: Array, guard: Array) -> Array:
        _, gradients = differentiate(parameters, x)
        if guarded:
            return ops.sgd_while_finite(parameters, gradients, 0.5, guard)
        return ops.sgd(parameters, gradients, 0.5), guard

    parameters, x, guard = on_device(backend, (ones(),), ones(), ones(1))
    for _ in range(4):
        result = backend.launch(step, parameters, x, guard)
        parameters, guard = result[0], result[1]
    # The gradient is x, which is 1: each step takes a half off the parameter, which began at 1.
    assert_close(backend.to_numpy(parameters), [np.array(-1, dtype=np.float32)])


def test_squares_that_float64_can_hold_are_finite(backend: Backend) -> None:
    parameters, gradients, guard = on_device(backend, (np.ones(2),), (np.full(2, 1e30),), ones(1))
    updated, guard = computed(
        backend, backend.ops.sgd_while_finite, parameters, gradients, 1e-30, guard
    )
    np.testing.assert_allclose(updated[0], [0, 0], atol=1e-12)
    np.testing.assert_array_equal(guard, [1])
