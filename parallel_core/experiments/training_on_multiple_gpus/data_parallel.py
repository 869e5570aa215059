"""Data-parallel training: how fast does LeNet train from scratch when each batch is divided over the devices?

Book: Dive into Deep Learning, "Training on Multiple GPUs"; the accuracy on several devices is its exercise 4.

Prediction: Each device differentiates its share of the batch by itself; only the sum of the gradients is exchanged. So
two devices need about half of one's time, and losses are the same on any number of devices, up to rounding.

Method: LeNet on Fashion-MNIST from the same start on every backend, by the training loop in
`parallel_core.training.loop`. The first losses are checked against NumPy on one device, and all devices' parameters
against each other. After epochs of few batches (`--limit`) there are no more test images than those trained on.

Look at: `images_per_second`, over different `--devices`, and the learning curve (`--plot`); `price_of_overlap`, how
much longer a device computes while the others do; with `--exchange during`, `buckets_reduced_early`.

Read: With the book's initial weights the loss stays on a plateau for about 300 steps. So an accuracy of 0.1 after a
short run is no error: the network has learnt nothing yet.
"""

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Annotated

from backends.process_groups import GroupedBackend
from parallel_core.experiments.runner.changes import Change, larger
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, interval_of
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.process_scaling import SCALING, measure_scaling
from parallel_core.experiments.training_on_multiple_gpus.training_steps import (
    case_of_epochs,
    check_first_losses,
    tested_on,
    time_units,
)
from parallel_core.experiments.works import BESIDE, price_of_overlap
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.system.machine import sample_machine, watched
from parallel_core.training.batches import Epoch, Settings, batches
from parallel_core.training.checkpoints import Checkpointing, check_resumable, continue_and_keep
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import ignore
from parallel_core.training.step import buckets_of, count_reduced_early, largest_replica_difference, launch_gradients

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
    nothing, with no images. Speed is of the epochs that were trained here from beginning to end; if there are none, of
    all, and a note says so. Accuracy and losses are of all. Raises NotFiniteError if training diverges, and
    RequestError if it cannot go on from a checkpoint with these settings.
    """
    backend = trial.backend
    checkpoints = checkpoints or Checkpointing()
    if checkpoints.resumed:
        check_resumable(checkpoints.resumed, settings, data)
        trial.notes.append(f"It went on from a checkpoint {checkpoints.resumed.origin}.")
    params = [backend.asarray(checkpoints.parameters(settings), device) for device in backend.devices]
    buckets = buckets_of(settings.exchange)
    trial.found("buckets", len(buckets))
    # The only bucket holds the last gradient too. A step warms up all the same, where it waits for no other process.
    warm_up = 0 if isinstance(backend, GroupedBackend) else 1
    few = replace(settings, limit=warm_up if len(buckets) == 1 else min(5, settings.limit or 5))
    steps = (launch_gradients(backend, params, *batch) for batch in batches(data, few, epoch=0))
    early = [count_reduced_early(backend, [one[1] for one in step], buckets) for step in steps]
    trial.found("buckets_reduced_early", median(early or [0]))
    # A short run ends soon: it is tested on as many images as it trains on.
    tested = tested_on(data, slice((settings.limit or len(data.train_labels)) * settings.batch_size))
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
    book_s = initial_parameters(settings.seed, settings.width)
    check_first_losses(trial, data, settings, book_s, epochs[0].losses, on_batch=lambda *_: on_batch(len(epochs), 0))
    timed = epochs[len(start.epochs) + bool(start.step) :]
    if not timed:
        timed = epochs
        trial.notes.append(
            "No epoch was trained here from beginning to end: the speed includes the checkpoint's epochs."
        )
    units = time_units(backend, len(params), data, settings, beside=True)
    trial.cases[EPOCH] = case_of_epochs(EPOCH, backend, lambda: params, units, data, settings, timed, watch)
    beside = {unit.name: unit for unit in units}
    if price := interval_of(lambda times: times[BESIDE] / times[units[0].name] - 1, beside):
        trial.found(PRICE.name, price)
    accuracies = tuple(epoch.accuracy for epoch in epochs)
    losses = tuple(loss for epoch in epochs for loss in epoch.losses)
    trial.found_by(SPEED.name, lambda times: timed[-1].images / times[EPOCH])
    trial.found(ACCURACY.name, Interval(accuracies[-1], accuracies[-1], accuracies[-1]))
    trial.found("best_test_accuracy", max(accuracies))
    trial.found("final_loss", losses[-1])
    trial.described |= {"data": data.source, "series": {"test_accuracy": accuracies, "loss": losses}}
    measure_scaling(trial, data, settings, trained=len(losses) - len(start.losses))


SPEED = Metric(
    "images_per_second",
    title="LeNet, images/s",
    means="images that training gets through in a second, on all devices together",
)
ACCURACY = Metric(
    "test_accuracy",
    means="the share of the test images that are classified correctly: up to 0.2 is guessing, or hardly better",
    bands=(Band(LOWEST, "chance", "The network has learnt nothing yet"), Band(0.2, "learnt", "The network has learnt")),
)
PRICE = replace(
    price_of_overlap(""),
    formula=None,
    means="how much longer a device computes its share of a step while the others compute theirs: 0 is no longer",
)

EXPERIMENT = Experiment(
    name="data-parallel",
    summary="How fast does LeNet train on two devices?",
    position=1,
    program=program,
    between_processes=program,
    extent=lambda _, data, settings, **__: (
        settings.epochs,
        min(len(data.train_labels), settings.batch_size * (settings.limit or len(data.train_labels))),
    ),
    case=EPOCH,
    metrics=(SPEED, Metric("seconds_per_epoch", lambda times: times[EPOCH], ratio=True), ACCURACY, PRICE, *SCALING),
    changes=(
        Change(lambda found: found.is_in(ACCURACY.name, "chance"), "A longer training (--epochs), without --limit."),
        Change(lambda found: len(found.devices) == 1, "More devices (--devices 2): the losses stay the same."),
        larger("batch_size", "A larger batch", "each device has more to do between two exchanges"),
    ),
    rounds=None,
    budget=None,
    options={"full": {"epochs": 3}, "quick": {"epochs": 1, "limit": 60}},
)
