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

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Annotated

from backends import Array, Backend
from backends.process_groups import GroupedBackend
from parallel_core.experiments.measuring import result_of
from parallel_core.experiments.runner.declaration import Experiment, Parameter
from parallel_core.experiments.training_on_multiple_gpus.first_losses import error_against_numpy
from parallel_core.experiments.training_on_multiple_gpus.process_scaling import with_scaling
from parallel_core.experiments.training_on_multiple_gpus.repeated_steps import bare_epoch_seconds, repeated_steps
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.result import Case, Result
from parallel_core.system.formatting import percent
from parallel_core.system.machine_watch import MachineWatch, sample_machine, watched
from parallel_core.training.batches import Settings, batches
from parallel_core.training.checkpoints import Checkpoint, Checkpointing, check_resumable, checkpoint_of
from parallel_core.training.dataset import Dataset
from parallel_core.training.gradient_exchange import Bucket, buckets_of, count_reduced_early
from parallel_core.training.lenet import initial_parameters, shapes
from parallel_core.training.loop import continue_training, ignore
from parallel_core.training.progress import CompletedSteps, Epoch
from parallel_core.training.replicas import count_replicas, largest_replica_difference
from parallel_core.training.step import launch_gradients

__all__ = ["EXPERIMENT", "about_sameness", "run", "verdict", "what_would_change"]

DEFAULTS = Settings()
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

STEPS_WATCHED = 5
CHANCE = 0.2
"""An accuracy below this is guessing among ten classes, or hardly better."""


def run(
    backend: Backend,
    data: Dataset,
    settings: Annotated[Settings, SETTINGS] = DEFAULTS,
    on_batch: Callable[[int, int], object] = ignore,
    on_epoch: Callable[[Epoch], object] = ignore,
    checkpoints: Checkpointing | None = None,
) -> Result:
    """Train LeNet from the same start as every other backend and return speed, accuracy and losses.

    `on_batch(epoch, images)` and `on_epoch(epoch)` are called as work is done; in the check against NumPy, which trains
    nothing, with no images. Speed is of the epochs that were trained here from beginning to end, if there are any;
    accuracy and losses are of all. Raises NotFiniteError if training diverges, and RequestError if it cannot go
    on from a checkpoint with these settings.
    """
    resumed = checkpoints.resumed if checkpoints else None
    if resumed:
        check_resumable(resumed, settings, data)
    start = resumed.state.progress if resumed else CompletedSteps()
    loaded = resumed.parameters if resumed else initial_parameters(settings.seed, settings.width)
    params = [backend.asarray(loaded, device) for device in backend.devices]
    buckets = buckets_of(settings.exchange, len(shapes()))
    # A single bucket holds the last gradient too.
    early = _reduced_early(backend, params, data, settings, buckets) if len(buckets) > 1 else 0
    epochs = start.epochs
    before = sample_machine()
    every = checkpoints.every if checkpoints else None
    for progress in continue_training(
        backend, params, _with_fewer_tests(data, settings), settings, on_batch, start, every
    ):
        if checkpoints and checkpoints.keep:
            checkpoints.keep(checkpoint_of(backend, backend.to_numpy(params[0]), settings, data, progress))
        if len(progress.epochs) > len(epochs):
            epochs = progress.epochs
            on_epoch(epochs[-1])
    watch = watched(before, sample_machine())
    timed = epochs[len(start.epochs) + bool(start.step) :] or epochs

    difference, devices = largest_replica_difference(backend, params), count_replicas(backend, params)
    # The check trains nothing, but tells the watchdog of this process that work goes on.
    error = error_against_numpy(data, settings, epochs[0].losses, on_batch=lambda *_: on_batch(len(epochs), 0))
    accuracies = tuple(epoch.accuracy for epoch in epochs)
    again, share = repeated_steps(backend, lambda: params, data, settings, epochs[0])
    metrics = {
        "images_per_second": median(epoch.images / epoch.seconds for epoch in timed),
        "seconds_per_epoch": median(epoch.seconds for epoch in timed),
        "test_accuracy": accuracies[-1],
        "best_test_accuracy": max(accuracies),
        "final_loss": epochs[-1].losses[-1],
        "buckets": len(buckets),
        "buckets_reduced_early": early,
    }
    return result_of(
        "data-parallel",
        backend,
        parameters=asdict(settings),
        cases=(
            Case(
                "training, an epoch",
                seconds=tuple(epoch.seconds for epoch in timed),
                dispatch_seconds=tuple(epoch.dispatch_seconds for epoch in timed),
                bare_seconds=bare_epoch_seconds(backend, len(params), data, settings, timed[0]),
                again=again,
                share=share,
                watch=watch,
            ),
        ),
        metrics=metrics,
        explanation=verdict(epochs, timed, devices) + (_went_on_from(resumed) if resumed else ""),
        answer=Answer(
            (about_sameness(error, devices), *_about_machine(watch)),
            what_would_change(settings, accuracies[-1], devices),
        ),
        error=error,
        compared="the first losses",
        of="their size",
        checks={"max_replica_difference": difference},
        judges_times=False,
        problems=()
        if difference == 0
        else (f"the devices' parameters differ after training, by {difference:.1e} of the largest",),
        data=data.source,
        series={"test_accuracy": accuracies, "loss": tuple(loss for epoch in epochs for loss in epoch.losses)},
    )


def _run_between_processes(
    backend: GroupedBackend,
    data: Dataset,
    settings: Settings,
    on_batch: Callable[[int, int], object],
    on_epoch: Callable[[Epoch], object],
    checkpoints: Checkpointing | None,
) -> Result:
    """Train as `run` does on the devices of all ranks, then measure what several processes cost and gain."""
    result = run(backend, data, settings, on_batch, on_epoch, checkpoints)
    resumed = checkpoints.resumed.state.progress.losses if checkpoints and checkpoints.resumed else ()
    return with_scaling(result, backend, data, settings, trained=len(result.series["loss"]) - len(resumed))


def _extent(_: Backend, data: Dataset, settings: Settings, **__: object) -> tuple[int, int]:
    """Return the epochs, and the images of each."""
    images = len(data.train_labels)
    return settings.epochs, min(images, settings.batch_size * (settings.limit or images))


def _with_fewer_tests(data: Dataset, settings: Settings) -> Dataset:
    """Return the data with as many test images as an epoch trains on, if it is limited: a short run ends soon."""
    images = slice((settings.limit or len(data.train_labels)) * settings.batch_size)
    return replace(data, test_images=data.test_images[images], test_labels=data.test_labels[images])


def _reduced_early(
    backend: Backend, params: Sequence[Array], data: Dataset, settings: Settings, buckets: Sequence[Bucket]
) -> float:
    """Count the buckets that are reduced before the backward pass has ended: the median over a few untimed steps."""
    few = replace(settings, limit=min(STEPS_WATCHED, settings.limit or STEPS_WATCHED))
    return median(
        count_reduced_early(backend, [step[1] for step in launch_gradients(backend, params, *batch)], buckets)
        for batch in batches(data, few, epoch=0)
    )


def verdict(epochs: Sequence[Epoch], timed: Sequence[Epoch], devices: int) -> str:
    """Say what training reached, how fast in the epochs that were timed, and how even the progress was."""
    last, best = epochs[-1].accuracy, max(epochs, key=lambda epoch: epoch.accuracy)
    speed = median(epoch.images / epoch.seconds for epoch in timed)
    where = "one device" if devices == 1 else f"{devices} devices"
    sentence = f"On {where}, training ran at {speed:.0f} images/s to a test accuracy of {last:.3f}"
    if best.accuracy > last:
        sentence += f" (best: {best.accuracy:.3f} after epoch {best.number})"
    plateau = [epoch.number for epoch in epochs if epoch.accuracy < CHANCE]
    if plateau and len(epochs) > len(plateau):
        sentence += (
            f"; after epoch {plateau[-1]} it was still at chance, for weights this small pass hardly any gradient back"
        )
    elif plateau:
        sentence += ", which is chance: weights this small pass hardly any gradient back at first, so train for longer"
    return f"{sentence}."


def about_sameness(error: float, devices: int) -> str:
    """Say that dividing the batch does not change what is computed."""
    told = f"The first losses are those of NumPy on one device to {error:.0e} of their size"
    if devices == 1:
        return f"{told}."
    return (
        f"{told}, and all {devices} devices end with the same parameters: dividing the batch changes only who computes."
    )


def _about_machine(watch: MachineWatch) -> tuple[str, ...]:
    """Say that the speed says little, if others took the cores."""
    if watch.allows_verdict:
        return ()
    return (f"How fast it is here cannot be said: other work took {percent(watch.taken_share)} of the cores' time.",)


def what_would_change(settings: Settings, accuracy: float, devices: int) -> str:
    """Say what would let the network learn, or train faster."""
    if accuracy < CHANCE:
        return (
            f"A longer training (--epochs {2 * settings.epochs}, without --limit): the network has learnt nothing yet."
        )
    if devices == 1:
        return "More devices, each with a core of its own (--devices 2): they change the speed, and not the losses."
    return (
        f"A larger batch (--batch-size {4 * settings.batch_size}), which gives each device more to do between two "
        f"exchanges; and one device (--devices 1), for what {devices} gain: `run batch-scaling` puts that to the test."
    )


def _went_on_from(resumed: Checkpoint) -> str:
    """Say where a training came from, and who got it there."""
    state = resumed.state
    place = f"step {state.step} of epoch {state.epoch}" if state.step else f"epoch {len(state.progress.epochs)}"
    return f" It went on from a checkpoint after {place}, written by {state.written.backend} {state.written.version}."


EXPERIMENT = Experiment(
    name="data-parallel",
    position=1,
    run=run,
    run_between_processes=_run_between_processes,
    extent=_extent,
    case="training, an epoch",
    metric="images_per_second",
    metric_means="images that training gets through in a second, on all devices together",
    options={"full": {"epochs": 3}, "quick": {"epochs": 1, "limit": 60}},
)
