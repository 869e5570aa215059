"""Data-parallel training: how fast does LeNet train from scratch when each batch is divided over the devices?

Book: Dive into Deep Learning, "Training on Multiple GPUs"; the accuracy on several devices is its exercise 4.

Prediction: Each device differentiates its share of the batch by itself; only the sum of the gradients is exchanged. So
two devices need about half of one's time, and losses are the same on any number of devices, up to rounding.

Method: LeNet on Fashion-MNIST from the same start on every backend, by the training loop in
`parallel_core.training.loop`. The first losses are checked against NumPy on one device, and all devices' parameters
against each other. After epochs of few batches (`--limit`) there are no more test images than those trained on.

Look at: `images_per_second`, over different `--devices`, and the learning curve (`--plot`); with `--exchange during`,
`buckets_reduced_early`.

Read: With the book's initial weights the loss stays on a plateau for about 300 steps. So an accuracy of 0.1 after a
short run is no error: the network has learnt nothing yet.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from backends import Backend
from parallel_core.experiments.runner.changes import Change, larger
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.first_losses import check_first_losses
from parallel_core.experiments.training_on_multiple_gpus.process_scaling import SCALING, measure_scaling
from parallel_core.experiments.training_on_multiple_gpus.repeated_steps import (
    bare_epoch_seconds,
    buckets_reduced_early,
    repeated_steps,
)
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case
from parallel_core.system.machine_watch import sample_machine, watched
from parallel_core.training.batches import Settings
from parallel_core.training.checkpoints import Checkpointing, check_resumable, continue_and_keep
from parallel_core.training.dataset import Dataset
from parallel_core.training.gradient_exchange import buckets_of
from parallel_core.training.lenet import shapes
from parallel_core.training.loop import ignore
from parallel_core.training.progress import Epoch
from parallel_core.training.replicas import largest_replica_difference

__all__ = ["EXPERIMENT", "program"]

EPOCH = "training, an epoch"
SETTINGS = Parameter(
    fields={
        "epochs": Parameter(),
        "batch_size": Parameter("Over all devices."),
        "learning_rate": Parameter("Learning rate.", option="lr", maximum=1e38),
        "limit": Parameter("Batches an epoch. Default: all."),
        "seed": Parameter(minimum=0, maximum=2**32 - 1),
        "exchange": Parameter("Sum gradients after the backward pass, or each layer's during it."),
        "width": Parameter("Times the channels and units."),
    }
)
DEFAULTS = Settings()


def program(
    trial: Trial,
    data: Dataset,
    settings: Annotated[Settings, SETTINGS] = DEFAULTS,
    on_batch: Callable[[int, int], object] = ignore,
    on_epoch: Callable[[Epoch], object] = ignore,
    checkpoints: Checkpointing | None = None,
) -> None:
    """Train LeNet from the same start as every other backend, for speed, accuracy and losses, and how these scale.

    `on_batch(epoch, images)` and `on_epoch(epoch)` are called as work is done; in the check against NumPy, which trains
    nothing, with no images. Speed is of the epochs that were trained here from beginning to end, if there are any;
    accuracy and losses are of all. Raises NotFiniteError if training diverges, and RequestError if it cannot go
    on from a checkpoint with these settings.
    """
    backend = trial.backend
    checkpoints = checkpoints or Checkpointing()
    if checkpoints.resumed:
        check_resumable(checkpoints.resumed, settings, data)
        trial.notes.append(f"It went on from a checkpoint {checkpoints.resumed.origin}.")
    params = [backend.asarray(checkpoints.parameters(settings), device) for device in backend.devices]
    buckets = buckets_of(settings.exchange, len(shapes()))
    trial.found("buckets", len(buckets))
    trial.found("buckets_reduced_early", buckets_reduced_early(backend, params, data, settings, buckets))
    # A short run ends soon: it is tested on as many images as it trains on.
    few = slice((settings.limit or len(data.train_labels)) * settings.batch_size)
    tested = replace(data, test_images=data.test_images[few], test_labels=data.test_labels[few])
    start = checkpoints.start
    epochs, before = start.epochs, sample_machine()
    for progress in continue_and_keep(backend, params, tested, settings, checkpoints, on_batch):
        if len(progress.epochs) > len(epochs):
            epochs = progress.epochs
            on_epoch(epochs[-1])
    watch = watched(before, sample_machine())

    difference = trial.checks["max_replica_difference"] = largest_replica_difference(backend, params)
    if difference:
        trial.problems.append(f"the devices' parameters differ after training, by {difference:.1e} of the largest")
    # It trains nothing, but tells the watchdog of this process that work goes on.
    check_first_losses(trial, data, settings, epochs[0].losses, on_batch=lambda *_: on_batch(len(epochs), 0))
    timed = epochs[len(start.epochs) + bool(start.step) :] or epochs
    again, share = repeated_steps(backend, lambda: params, data, settings, epochs[0])
    seconds, dispatched = zip(*((epoch.seconds, epoch.dispatch_seconds) for epoch in timed), strict=True)
    bare = bare_epoch_seconds(backend, len(params), data, settings, timed[0])
    trial.cases[EPOCH] = Case(EPOCH, seconds, dispatched, bare_seconds=bare, again=again, share=share, watch=watch)
    accuracies = tuple(epoch.accuracy for epoch in epochs)
    losses = tuple(loss for epoch in epochs for loss in epoch.losses)
    trial.found_by(SPEED.name, lambda times: timed[-1].images / times[EPOCH])
    trial.found(ACCURACY.name, Interval(accuracies[-1], accuracies[-1], accuracies[-1]))
    trial.found("best_test_accuracy", max(accuracies))
    trial.found("final_loss", losses[-1])
    trial.described |= {"data": data.source, "series": {"test_accuracy": accuracies, "loss": losses}}
    measure_scaling(trial, data, settings, trained=len(losses) - len(start.losses))


def _extent(_: Backend, data: Dataset, settings: Settings, **__: object) -> tuple[int, int]:
    """Return the epochs, and the images of each."""
    images = len(data.train_labels)
    return settings.epochs, min(images, settings.batch_size * (settings.limit or images))


SPEED = Metric("images_per_second", means="images that training gets through in a second, on all devices together")
ACCURACY = Metric(
    "test_accuracy",
    means="the share of the test images that are classified correctly: up to 0.2 is guessing, or hardly better",
    timed=False,
    bands=(Band(LOWEST, "chance", "The network has learnt nothing yet"), Band(0.2, "learnt", "The network has learnt")),
)

EXPERIMENT = Experiment(
    name="data-parallel",
    position=1,
    program=program,
    between_processes=program,
    extent=_extent,
    case=EPOCH,
    metrics=(SPEED, Metric("seconds_per_epoch", lambda times: times[EPOCH], ratio=True), ACCURACY, *SCALING),
    changes=(
        Change(lambda found: found.is_in(ACCURACY.name, "chance"), "A longer training (--epochs), without --limit."),
        Change(lambda found: len(found.backend.devices) == 1, "More devices (--devices 2): the losses stay the same."),
        larger("batch_size", "A larger batch", "each device has more to do between two exchanges"),
    ),
    rounds=None,
    budget=None,
    options={"full": {"epochs": 3}, "quick": {"epochs": 1, "limit": 60}},
)
