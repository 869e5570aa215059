"""The learning curve as a picture: loss by batch, test accuracy by epoch."""

from typing import BinaryIO

from parallel_core.errors import RequestError
from parallel_core.result import Result

__all__ = ["check_plotting", "draw_learning_curve"]


def check_plotting() -> None:
    """Raise RequestError where matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise RequestError("--plot needs matplotlib: pip install 'parallel-core[plot]'") from error


def draw_learning_curve(result: Result, stream: BinaryIO) -> None:
    """Draw the result of `data-parallel` as PNG into a binary stream."""
    from matplotlib.figure import Figure

    losses, accuracies = result.series["loss"], result.series["test_accuracy"]
    per_epoch = len(losses) / len(accuracies)
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    (loss,) = left.plot(
        [(step + 1) / per_epoch for step in range(len(losses))],
        losses,
        color="tab:blue",
        linewidth=0.8,
        label="training loss",
    )
    left.set(xlabel="epoch", ylabel="loss per image", ylim=(0, None), xlim=(0, len(accuracies)))
    right = left.twinx()
    (accuracy,) = right.plot(
        range(1, len(accuracies) + 1), accuracies, color="tab:orange", marker="o", label="test accuracy"
    )
    right.set(ylabel="accuracy", ylim=(0, 1))
    backend = result.backend
    left.set_title(
        f"LeNet on {backend['name']} {backend['version']}, {backend['engine']} engine, "
        f"{', '.join(backend['devices'])}\n{result.data}",
        fontsize="medium",
    )
    left.legend(handles=[loss, accuracy], loc="center right")
    figure.savefig(stream, format="png", dpi=150)
