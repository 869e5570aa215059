"""Data-parallel training: how fast does LeNet train from scratch when each batch is divided over
the devices?

Book: Dive into Deep Learning, "Training on Multiple GPUs"; the accuracy on several devices is its
exercise 4.

Prediction: Each device differentiates its share of the batch by itself; only the sum of the
gradients is exchanged. So two devices need about half of one's time, and losses are the same on any
number of devices, up to rounding.

Method: LeNet on Fashion-MNIST from the same start on every backend, by the training loop in
`parallel_core.training.loop`: one epoch of as many batches as fit a minute, or `--epochs 10`, the
book's training with all its batches. Before, one device and all devices take steps in turn, 60 at
most, from weights 8 times as large as the book's. The first losses are checked against NumPy on one
device, and all devices' parameters against each other. After epochs of few batches there are no
more test images than those trained on.

Look at: `speedup_over_one_device`, and how many losses are those of one device;
`images_per_second`, and the learning curve (`--plot`); `price_of_overlap`, how much longer a device
computes while the others do; with `--exchange during`, `buckets_reduced_early`.

Read: With the book's initial weights the loss stays on a plateau for about 300 steps. So without
`--epochs` they are 8 times as large, and an accuracy of 0.1 after a short run of `--epochs` is no
error: the network has learnt nothing yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from backends import Array, Backend
from backends.process_groups import grouped
from parallel_core.experiments import training_steps
from parallel_core.experiments.runner.changes import Change, larger
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, DirectAnswer, Metric
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.one_device import (
    EQUAL,
    SPEEDUP,
    find_gain,
    train_in_turn,
)
from parallel_core.experiments.training_on_multiple_gpus.process_scaling import (
    SCALING,
    measure_scaling,
    of_first,
)
from parallel_core.experiments.training_on_multiple_gpus.step_counts import AT_ONCE, EARLY
from parallel_core.experiments.workloads import BESIDE, price_of_overlap
from parallel_core.measurement.checks import devices_differ
from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.measurement.over_rounds import in_percent
from parallel_core.measurement.result import Note, Result
from parallel_core.system.machine import sample_machine, watched
from parallel_core.training.batches import CompletedSteps, Epoch, Settings, steps_of
from parallel_core.training.checkpoints import Checkpointing, check_resumable
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import start_of
from parallel_core.training.loop import OnBatch, continue_training, ignore
from parallel_core.training.plan import TrainingPlan, plan_training
from parallel_core.training.step import largest_replica_difference

EPOCH = "training, an epoch"
EXCHANGED_DURING = "training, gradients exchanged during the backward pass"
RECORDED_STEPS = 5
SETTINGS = Parameter(
    fields={
        "epochs": Parameter("The book has 10. Default: one, of batches that fit a minute."),
        "batch_size": Parameter("Over all devices."),
        "learning_rate": Parameter("Learning rate.", option="lr", maximum=1e38),
        "limit": Parameter("Batches an epoch. Default: all, if --epochs is given.", is_amount=True),
        "seed": Parameter(minimum=0, maximum=2**32 - 1),
        "exchange": Parameter("Sum gradients after the backward pass, or each layer's during it."),
        "width": Parameter("Times the channels and units."),
        "initial_scale": Parameter("Times the book's weights. Default: 8 without --epochs, or 1."),
    }
)
DEFAULTS = Settings(epochs=None)
COMPARED = Parameter("First steps that one device takes too. Default: 60 at most.", minimum=0)


def program(
    trial: Trial,
    data: Dataset,
    settings: Annotated[Settings, SETTINGS] = DEFAULTS,
    compared: Annotated[int | None, COMPARED] = None,
    on_plan: Callable[[TrainingPlan], object] = ignore,
    on_batch: OnBatch = ignore,
    on_epoch: Callable[[Epoch], object] = ignore,
    checkpoints: Checkpointing | None = None,
) -> None:
    """Train LeNet on all devices, and find its speed, accuracy and losses, and how these scale.

    Without epochs in the settings or a checkpoint there is one epoch, of as many batches as fit a
    minute, from enlarged weights. One device takes `compared` first steps too, unless there are
    several processes. Every backend starts from the same parameters.

    `on_plan(plan)` is called before the training, `on_batch(epoch, images)` after each batch, and
    `on_epoch(epoch)` after each epoch. The comparisons with one device and with NumPy train
    nothing, and call `on_batch` with no images.

    The speed is of the epochs that were trained here from beginning to end, or of all epochs if
    there are none, and a note says so. Accuracy and losses are of all epochs. Raises NotFiniteError
    if the training diverges, and RequestError if it cannot go on from a checkpoint with these
    settings.
    """
    backend = trial.backend
    checkpoints = checkpoints or Checkpointing()
    start = progress = checkpoints.start
    if checkpoints.resumed:
        settings = checkpoints.settings(settings)
        check_resumable(checkpoints.resumed, settings, data)
        went_on = f"It went on from a checkpoint {checkpoints.resumed.origin}."
        trial.notes.append(Note("from-checkpoint", went_on))
    elif settings.initial_scale is None and settings.epochs is None:
        # From the book's weights the loss would not move in a minute.
        settings = replace(settings, initial_scale=training_steps.ENLARGED)
    params = training_steps.placed(backend, checkpoints.parameters(settings))
    training_steps.find_early_buckets(trial, params, data, settings)
    plan = plan_on(backend, data, settings, compared, done=len(start.losses))
    on_plan(plan)
    settings = plan.settings
    trial.parameters |= {
        "epochs": settings.epochs,
        "limit": settings.limit,
        "initial_scale": settings.initial_scale,
        "compared": plan.compared,
    }
    turns = train_in_turn(backend, data, settings, plan.compared, on_batch)
    # A short training is tested on as many images as it trains on, so that testing is short too.
    batches_of_epoch = settings.limit or len(data.train_labels)
    tested = data.tested_on(batches_of_epoch * settings.batch_size)
    before = sample_machine()
    for progress in continue_training(
        backend, params, tested, settings, on_batch, start, checkpoints.every
    ):
        checkpoints.write(backend, params, settings, tested, progress)
        if progress.step == 0:
            on_epoch(progress.epochs[-1])
    watch = watched(before, sample_machine())
    epochs, losses = progress.epochs, progress.losses

    _check_replicas(trial, params)
    # NumPy trains nothing, but its calls of `on_batch` tell this process's watchdog that work goes
    # on.
    training_steps.check_first_losses(
        trial,
        data,
        settings,
        start_of(settings),
        epochs[0].losses,
        on_batch=lambda *_: on_batch(len(epochs), 0),
    )
    timed = timed_epochs(start, epochs)
    if not timed:
        timed = epochs
        trial.notes.append(INCLUDED_EPOCHS)
    units = training_steps.time_units(backend, len(params), data, settings, beside=True)
    training_steps.add_case_of_epochs(
        trial, EPOCH, lambda: params, units, data, settings, timed, watch
    )
    keep_for_counting(trial, params, data, settings)
    trial.found(PRICE.name, PRICE.measured(units))
    if plan.compared:
        find_gain(trial, turns)
    trial.found_by(SPEED.name, lambda times: timed[-1].images / times[EPOCH])
    _find_accuracy_and_losses(trial, epochs, losses)
    trial.described["data"] = data.source
    measure_scaling(trial, data, settings, trained=len(losses) - len(start.losses))


def _check_replicas(trial: Trial, params: Sequence[Array]) -> None:
    """Check that all devices have the same parameters after the training."""
    difference = largest_replica_difference(trial.backend, params)
    trial.checks["max_replica_difference"] = difference
    if difference:
        trial.problems.append(devices_differ("parameters after training", difference))


INCLUDED_EPOCHS = Note(
    "included-epochs",
    "No epoch was trained here from beginning to end: the speed includes the checkpoint's epochs.",
)


def _find_accuracy_and_losses(
    trial: Trial, epochs: Sequence[Epoch], losses: Sequence[float]
) -> None:
    """Find the last and the best accuracy, and the last loss; describe those of all epochs."""
    accuracies = tuple(epoch.accuracy for epoch in epochs)
    last = accuracies[-1]
    trial.found(ACCURACY.name, Interval(last, last, last))
    trial.found("best_test_accuracy", max(accuracies))
    trial.found("final_loss", losses[-1])
    trial.described["series"] = {"test_accuracy": accuracies, "loss": losses}


def timed_epochs(start: CompletedSteps, epochs: Sequence[Epoch]) -> Sequence[Epoch]:
    """Return the epochs that were trained here from beginning to end, after a checkpoint's start.

    An epoch that had begun before the checkpoint is left out.
    """
    begun_before = len(start.epochs)
    if start.step:
        begun_before += 1
    return epochs[begun_before:]


def plan_on(
    backend: Backend, data: Dataset, settings: Settings, compared: int | None, done: int
) -> TrainingPlan:
    """Plan a training on all devices, after `done` steps.

    One device takes `compared` first steps too, unless it is the only one or there are several
    processes.
    """
    one_of_several = grouped(backend)
    if one_of_several is not None:
        agree = partial(of_first, one_of_several.group)
        return plan_training(backend, data, settings, 0, done, agree=agree)
    if len(backend.devices) == 1:
        compared = 0
    return plan_training(backend, data, settings, compared, done)


def keep_for_counting(trial: Trial, params: list[Array], data: Dataset, settings: Settings) -> None:
    """Keep a function that takes a few steps, to be recorded; it trains the parameters further."""
    steps = min(RECORDED_STEPS, steps_of(data, settings))
    few = replace(settings, limit=steps)
    take = partial(training_steps.time_steps, trial.backend, params, data, few)
    trial.takes[EPOCH] = take
    if settings.exchange == "during":
        trial.takes[EXCHANGED_DURING] = take


MOVED = 0.05
"""The share by which a loss has fallen if the network has moved."""
SPEED = Metric(
    "images_per_second",
    title="LeNet, images/s",
    means="images that training gets through in a second, on all devices together",
    # If all devices are compared with one, the answer says it.
    said=lambda result: SPEEDUP.name not in result.metrics,
)
ACCURACY = Metric(
    "test_accuracy",
    means="the share of the test images that are classified correctly: up to 0.2 is guessing, or "
    "hardly better",
    bands=(
        Band(LOWEST, "chance", "The network has learnt nothing yet"),
        Band(0.2, "learnt", "The network has learnt"),
    ),
)
PRICE = replace(
    price_of_overlap(""),
    formula=lambda times: times[BESIDE] / times[training_steps.UNIT.format(0)] - 1,
    means="how much longer a device computes its share of a step while the others compute theirs: "
    "0 is no longer",
)


def how_fast_and_whether_equal(result: Result) -> DirectAnswer | None:
    """Say how fast the training was, beside one device, and whether its losses show something."""
    speed, gain = result.interval(SPEED.name), result.interval(SPEEDUP.name)
    if speed is None or gain is None:
        return None
    devices = len(result.backend["devices"])
    losses = result.series["loss"]
    fell = 1 - losses[-1] / losses[0]
    remark = ""
    price = result.interval(PRICE.name)
    if gain.low < 1 < gain.high:
        remark = " (this run cannot tell whether that is faster)"
    elif price is not None and price.low > 0 and gain.high < devices:
        longer = in_percent(price)
        remark = f", and no more, because each computes {longer} longer while the others compute"
    sentence = (
        f"{with_bounds(speed)} images a second on {devices} devices, {with_bounds(gain)} times as "
        f"fast as one{remark}. The loss went from {losses[0]:.3f} to {losses[-1]:.3f}"
    )
    if fell < MOVED:
        return DirectAnswer(
            "hardly-moved",
            f"{sentence}: it hardly moved (--epochs 10 trains).",
        )
    return DirectAnswer("moved", f"{sentence}.")


def extent(_: Backend, data: Dataset, settings: Settings, **__: object) -> tuple[int, int]:
    """Return the number of epochs, and the images of an epoch."""
    images = len(data.train_labels)
    if settings.limit:
        images = min(images, settings.limit * settings.batch_size)
    return settings.last_epoch, images


EXPERIMENT = Experiment(
    name="data-parallel",
    question="LeNet on two devices: how fast, same loss?",
    position=1,
    program=program,
    usual_deviation=0.04,
    between_processes=program,
    extent=extent,
    case=EPOCH,
    metrics=(
        SPEED,
        # The answer says it.
        replace(SPEEDUP, said=lambda _: False),
        Metric("seconds_per_epoch", lambda times: times[EPOCH], ratio=True),
        ACCURACY,
        PRICE,
        *SCALING,
    ),
    counts=(
        replace(AT_ONCE, case=EPOCH),
        EQUAL,
        replace(EARLY, case=EXCHANGED_DURING),
    ),
    answer=how_fast_and_whether_equal,
    changes=(
        Change(
            lambda answered: answered.is_in(ACCURACY.name, "chance"),
            "A longer training: --epochs 10, without --limit, is the book's.",
        ),
        Change(
            lambda answered: len(answered.devices) == 1,
            "More devices (--devices 2): the losses stay the same.",
        ),
        larger("batch_size", "A larger batch", "each device has more to do between two exchanges"),
    ),
    rounds=None,
    budget=None,
    options={
        "full": {"epochs": 3, "limit": 40, "compared": 24},
        "quick": {"epochs": 2, "limit": 4, "compared": 4},
    },
)
