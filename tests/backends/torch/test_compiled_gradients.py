"""When a model's gradients can be exchanged: layer by layer with eager PyTorch, all at the end once it is compiled."""

from collections.abc import Callable

import pytest

LAYERS = 4
GRADIENT, MULTIPLICATION = "gradient", "aten::mm"


def backward_in_order(compiled: bool) -> list[str]:
    """Return the matrix multiplications of a backward pass, and when gradients are ready, in their order."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    def mark(_: torch.Tensor) -> None:
        with record_function(GRADIENT):
            pass

    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(LAYERS)))
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(mark)
    # The graph is what a compiler would be given, so none is needed.
    run = torch.compile(model, backend="aot_eager") if compiled else model
    run(torch.ones(2, 8)).sum().backward()
    loss = run(torch.ones(2, 8)).sum()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        loss.backward()
    events = sorted(recorded.events(), key=lambda event: event.time_range.start)
    return [event.name for event in events if event.name in (GRADIENT, MULTIPLICATION)]


@pytest.mark.long
@pytest.mark.parametrize("compiled", [False, True])
def test_a_compiled_backward_pass_gives_no_gradient_before_its_end(
    compiled: bool, require: Callable[[str], None]
) -> None:
    require("torch")
    order = backward_in_order(compiled)
    # The first layer's input needs no gradient; each layer has a weight and a bias.
    assert (order.count(MULTIPLICATION), order.count(GRADIENT)) == (2 * LAYERS - 1, 2 * LAYERS)
    assert (GRADIENT not in order[: 2 * LAYERS - 1]) == compiled
