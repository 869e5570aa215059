"""PyTorch's functions: gradients share memory with nothing, and may be overwritten when they are
announced.
"""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

ops: Any = pytest.importorskip("backends.torch.ops")
from backends.torch.streams.sharing import check_apart  # noqa: E402

Loss = Callable[..., Any]


def shifted(x: Any) -> Any:
    """Add one to each element."""
    return ops.add(x, 1.0)


def both(p: Any) -> Any:
    """Add two parameters, flattened."""
    return ops.add(ops.flatten(p[0]), ops.flatten(p[1]))


def weigh(x: Any) -> Any:
    """Sum the products of elements and these elements plus two."""
    return ops.total(ops.multiply(x, ops.add(x, 2.0)))


SHARING_LOSSES: dict[str, Loss] = {
    "views of a sum": lambda p: ops.total(both(p)),
    "views of a weighed sum": lambda p: weigh(both(p)),
    "an array and a view": lambda p: weigh(ops.add(ops.flatten(p[0]), ops.flatten(shifted(p[1])))),
    "a view and its own use": lambda p: weigh(
        ops.multiply(ops.flatten(p[0]), ops.flatten(ops.multiply(p[0], p[1])))
    ),
    "one of two used": lambda p: weigh(ops.flatten(p[1])),
    "sums alone": lambda p: ops.add(ops.total(p[0]), ops.total(p[1])),
    "products": lambda p: weigh(ops.matmul(ops.flatten(p[0]), ops.flatten(p[1]))),
    "a sum of three": lambda p: weigh(ops.add(both(p), ops.flatten(p[0]))),
}


@pytest.mark.parametrize("loss", SHARING_LOSSES)
def test_gradients_share_memory_with_nothing_and_may_be_overwritten_when_announced(
    loss: str,
) -> None:
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
    check_apart((differentiate(parameters), parameters))
    differentiate.function(announce, parameters)
    for position, expected_gradient in enumerate(expected):
        zeros = torch.zeros_like(expected_gradient)
        gradient = announced.get((1, position), zeros)
        torch.testing.assert_close(gradient, expected_gradient)
