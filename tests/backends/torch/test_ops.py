"""PyTorch's functions: gradients share memory with nothing, and may be overwritten when they are
announced.
"""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

ops: Any = pytest.importorskip("backends.torch.ops")

Loss = Callable[..., Any]


def shifted(x: Any) -> Any:
    """Add one to each element."""
    return ops.add(x, 1.0)


def sum_flattened(p: Any) -> Any:
    """Add two parameters, flattened."""
    return ops.add(ops.flatten(p[0]), ops.flatten(p[1]))


def weigh(x: Any) -> Any:
    """Sum the products of elements and these elements plus two."""
    return ops.total(ops.multiply(x, ops.add(x, 2.0)))


def sum_with_a_view(p: Any) -> Any:
    """Weigh the sum of the flattened first parameter and the flattened second one plus one."""
    shifted_second = ops.flatten(shifted(p[1]))
    return weigh(ops.add(ops.flatten(p[0]), shifted_second))


def product_with_a_view(p: Any) -> Any:
    """Weigh the product of the flattened first parameter and a flattened product with it."""
    product = ops.flatten(ops.multiply(p[0], p[1]))
    return weigh(ops.multiply(ops.flatten(p[0]), product))


SHARING_LOSSES: dict[str, Loss] = {
    "views of a sum": lambda p: ops.total(sum_flattened(p)),
    "views of a weighed sum": lambda p: weigh(sum_flattened(p)),
    "an array and a view": sum_with_a_view,
    "a view and its own use": product_with_a_view,
    "one of two used": lambda p: weigh(ops.flatten(p[1])),
    "sums alone": lambda p: ops.add(ops.total(p[0]), ops.total(p[1])),
    "products": lambda p: weigh(ops.matmul(ops.flatten(p[0]), ops.flatten(p[1]))),
    "a sum of three": lambda p: weigh(ops.add(sum_flattened(p), ops.flatten(p[0]))),
}
"""Functions of two parameters, of which PyTorch computes gradients that share memory."""


def drawn_parameters() -> tuple[Any, Any]:
    """Draw the same two parameters every time."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(3, 3, 1, generator=generator), torch.rand(3, 3, 1, generator=generator)


@pytest.mark.parametrize("loss", SHARING_LOSSES)
def test_gradients_may_be_overwritten_when_they_are_announced(loss: str) -> None:
    parameters = drawn_parameters()
    with_gradients = [x.clone().requires_grad_() for x in parameters]
    SHARING_LOSSES[loss](with_gradients).backward()

    announced_gradients = {}

    def announce(path: tuple[int, ...], gradient: Any) -> None:
        """Keep a copy of a gradient, and overwrite the gradient itself."""
        announced_gradients[path] = gradient.clone()
        gradient.fill_(float("nan"))

    differentiate = ops.value_and_grad(SHARING_LOSSES[loss])
    differentiate.function(announce, parameters)

    for position, x in enumerate(with_gradients):
        # A parameter that the loss does not use has no gradient, and none is announced.
        zeros = torch.zeros_like(x)
        expected_gradient = zeros if x.grad is None else x.grad
        # The result is (value, gradients).
        gradient = announced_gradients.get((1, position), zeros)
        torch.testing.assert_close(gradient, expected_gradient)
