"""The learning curve: loss by batch, test accuracy by epoch."""

from matplotlib.figure import Figure

from parallel_core.measurement.result import Result

__all__ = ["learning_curve"]


def learning_curve(result: Result) -> Figure:
    """Draw a result that has losses and accuracies."""
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
    left.set(xlabel="epoch", ylabel="loss per image", ylim=(0, 1.05 * max(losses)), xlim=(0, len(accuracies)))
    right = left.twinx()
    (accuracy,) = right.plot(
        range(1, len(accuracies) + 1), accuracies, color="tab:orange", marker="o", label="test accuracy"
    )
    right.set(ylabel="accuracy", ylim=(0, 1))
    left.legend(handles=[loss, accuracy], loc="center right")
    return figure
