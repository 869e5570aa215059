"""Arguments whose shapes and dtypes do not fit each other are errors, and broadcast nowhere."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.backends.protocol.arrays import Load
from tests.backends.protocol.operators.arguments import assert_fails, ones

Arguments = tuple[Any, ...]
IMAGES = ones(1, 1, 4, 4)
TWO_DTYPES = ones(3, 3), ones(3, 3, dtype="float64")
ELEMENTWISE = [(ones(2), ones(3)), (ones(2, 3), ones(2)), TWO_DTYPES]


def no_matrices() -> Iterator[Arguments]:
    """Yield factors of which one is no matrix."""
    shapes = ((), (2,), (2, 2), (1, 2, 2))
    for shape, other_shape in product(shapes, repeat=2):
        if (len(shape), len(other_shape)) != (2, 2):
            yield ones(*shape), ones(*other_shape)
    yield TWO_DTYPES


def no_convolutions() -> Iterator[Arguments]:
    """Yield images, filters and a bias of which one does not fit the others."""
    for bias in ((), (1,), (3,), (2, 1), (1, 2)):
        yield IMAGES, ones(2, 1, 2, 2), ones(*bias)
    for images in ((2, 4, 4), (1, 1, 4, 4), (1, 4, 4, 4)):
        yield ones(*images), ones(2, 2, 2, 2), ones(2)
    for filters in ((2, 1, 3, 3), (2, 1, 2), (2, 2)):
        yield ones(1, 1, 2, 4), ones(*filters), ones(2)
    yield ones(1, 1, 4), ones(2, 1, 2), ones(2)


def no_pools() -> Iterator[Arguments]:
    """Yield images and a width that does not divide them."""
    yield IMAGES, 0
    for images in ((4, 4), (1, 4, 4), (1, 1, 1, 4)):
        yield ones(*images), 2


def no_parts() -> Iterator[Arguments]:
    """Yield what cannot be split into parts of these lengths."""
    yield ones(2), [3, -1]
    for shape in ((), (2,), (4,), (3, 1)):
        yield ones(*shape), [1, 2]


def no_labelled_scores() -> Iterator[Arguments]:
    """Yield scores and labels of which each row has not one."""
    for shape in ((), (1,), (2,), (4,), (3, 1), (1, 3)):
        yield ones(3, 4), np.zeros(shape, int)
    for shape in ((), (4,), (3, 1), (1, 4, 2)):
        yield ones(*shape), np.zeros(1, int)
    yield ones(3, 4, 2), np.zeros((3, 2), int)


MISFITS: dict[str, Iterable[Arguments]] = {
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
"""Arguments that do not fit: arrays, and in some ops a number or a list behind them."""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(name, arguments) for name in MISFITS for arguments in MISFITS[name]],
)
def test_shapes_that_do_not_fit_are_errors(load: Load, name: str, arguments: Arguments) -> None:
    arrays = [argument for argument in arguments if not isinstance(argument, int | list)]
    further_arguments = arguments[len(arrays) :]
    backend = load(1)
    op = getattr(backend.ops, name)
    assert_fails(backend, lambda *x: op(*x, *further_arguments), *arrays)


@pytest.mark.parametrize("shape", [(1,), (2, 2)])
def test_gradients_are_of_a_number(load: Load, shape: tuple[int, ...]) -> None:
    backend = load(1)
    assert_fails(backend, backend.ops.value_and_grad(lambda p: p[0]), (ones(*shape),))


def test_gradients_are_by_a_parameter(load: Load) -> None:
    backend = load(1)
    without_parameters = backend.ops.value_and_grad(lambda _, x: backend.ops.total(x))
    assert_fails(backend, without_parameters, (), ones(2))
