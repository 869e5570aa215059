"""PyTorch's gradients, of which autograd lets some share memory, may be overwritten as soon as they
are announced.
"""

from typing import Any

import pytest

from tests.backends.protocol.test_memory import LOSSES

torch = pytest.importorskip("torch")

ops: Any = pytest.importorskip("backends.torch.ops")


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_may_be_overwritten_when_they_are_announced(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.rand(3, 3, 1, generator=generator) for _ in range(2)]
    with_gradients = [x.clone().requires_grad_() for x in parameters]
    LOSSES[name](ops, with_gradients).backward()

    announced_gradients = {}

    def announce(path: tuple[int, ...], gradient: Any) -> None:
        """Keep a copy of a gradient, and overwrite the gradient itself."""
        announced_gradients[path] = gradient.clone()
        gradient.fill_(float("nan"))

    differentiate = ops.value_and_grad(lambda p: LOSSES[name](ops, p))
    differentiate.function(announce, tuple(parameters))

    for position, x in enumerate(with_gradients):
        # A parameter that the loss does not use has no gradient, and none is announced.
        zeros = torch.zeros_like(x)
        expected_gradient = zeros if x.grad is None else x.grad
        # The result is (value, gradients).
        gradient = announced_gradients.get((1, position), zeros)
        torch.testing.assert_close(gradient, expected_gradient)
