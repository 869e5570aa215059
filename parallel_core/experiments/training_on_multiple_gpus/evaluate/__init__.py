"""Evaluation: is a network's accuracy the same on every number of devices, and how much faster are more of them?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 4: implement the computation of the test accuracy
on several devices.

Prediction: A trained network classifies each image by itself. So the images can be divided over devices that hold the
same parameters, each device counts the images that it has classified correctly, and the sum of the counts is the number
that one device finds: the same to the last image, on every framework. Nothing but a number travels between devices, so
k devices should be nearly k times as fast.

Method: LeNet is trained for a few steps on all devices, or read from `--checkpoint`. Then the test set is evaluated on
1, 2, 4, … of them up to all, in turn. A device has shards of `--batch-size` images whatever the number of devices, so
that their number is the only difference; what is timed are as many images as fit into the budget. Apart from that the
scores of all images are computed on every number of devices and compared image by image, with each other and with
NumPy's as far as the budget lasts.

Look at: `correct_images`, and whether the answer calls it equal everywhere; `evaluation_speedup`, the images a second
on all devices over those on one; the curve of images a second over the number of devices.

Read: The count may differ where an image's two highest scores are closer to each other than rounding: a shard of
another length may be summed in another order. The answer then names such images and the distance of their scores. A
larger difference is an error, and makes the result invalid. If devices share cores, or on a synchronous engine, more
devices cannot be faster.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np

from backends import Array, Backend
from parallel_core.experiments.measuring import result_of, take_in_turn
from parallel_core.experiments.runner.declaration import BUDGET, Budget, Exercise, Experiment, Parameter, Rounds, Seed
from parallel_core.experiments.training_on_multiple_gpus.evaluate import verdicts
from parallel_core.experiments.training_on_multiple_gpus.evaluate.networks import Network, placed, trained_briefly
from parallel_core.experiments.training_on_multiple_gpus.evaluate.scores import (
    Compared,
    first_images,
    numpy_scores,
    scores_on,
)
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import counted_devices, device_counts
from parallel_core.experiments.training_on_multiple_gpus.steps_as_units import Step, units_of
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.confidence_intervals import exponential
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import Timing, countdown
from parallel_core.measurement.verdicts import over_rounds, times_as_long
from parallel_core.training.batches import Settings, steps_of
from parallel_core.training.checkpoints import Checkpoint, CheckpointError, read_checkpoint
from parallel_core.training.dataset import Dataset
from parallel_core.training.loop import add_counts, launch_counts

__all__ = ["EXPERIMENT", "run"]

TRAINING = Settings(epochs=1, batch_size=64, learning_rate=0.1)
INITIAL_SCALE = 8.0
"""From the book's own weights so short a training would stay at chance."""
TRAINING_SHARE, NUMPY_SHARE, TIMED_SHARE = 0.3, 0.55, 0.95
"""Of the budget: until when is trained, until when NumPy may begin another shard, and until when is timed."""


def _checkpoint(directory: str) -> Checkpoint:
    try:
        return read_checkpoint(Path(directory))
    except CheckpointError as error:
        raise ValueError(str(error)) from error


def run(
    backend: Backend,
    data: Dataset,
    batch_size: Annotated[int, Parameter("Of one device.")] = 500,
    train_steps: Annotated[int, Parameter("Steps of training before, at most.")] = 100,
    checkpoint: Annotated[
        Checkpoint | None, Parameter("Evaluate the training that is kept there.", metavar="DIR", parse=_checkpoint)
    ] = None,
    images: Annotated[int | None, Parameter("Test images in a timing. Default: as many as fit.")] = None,
    seed: Seed = 0,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Evaluate one network on 1, 2, 4, … devices: the same count of correct images everywhere, and how fast.

    A training takes `train_steps` steps, or fewer if they would take too much of the budget; there is none with a
    checkpoint. Raises NotFiniteError if it diverges.
    """
    left = countdown(budget)
    taken = 0
    wanted = replace(TRAINING, limit=train_steps, seed=seed)
    if checkpoint is None:
        network, taken = trained_briefly(backend, data, wanted, INITIAL_SCALE, partial(left, TRAINING_SHARE))
    else:
        network = checkpoint.parameters
    params = {count: placed(backend, network, count) for count in device_counts(len(backend.devices))}
    found = {count: scores_on(backend, own, data, batch_size) for count, own in params.items()}
    expected = numpy_scores(network, data, batch_size, partial(left, NUMPY_SHARE))
    last = max(params)
    timed = (
        first_images(data, images)
        if images
        else _as_many_as_fit(backend, params, data, batch_size, rounds, left(TIMED_SHARE))
    )
    cases = _time(backend, network, params, timed, batch_size, rounds, left(TIMED_SHARE))
    by_count = dict(zip(params, cases, strict=True))
    scores = {counted_devices(count): each for count, (each, _) in found.items()}
    counted = {counted_devices(count): correct for count, (_, correct) in found.items()}
    compared = Compared(scores, expected, data.test_labels, counted)
    speeds = {
        count: exponential(over_rounds(lambda seconds: np.log(len(timed.test_labels) / seconds), case.seconds))
        for count, case in by_count.items()
    }
    speedup = times_as_long(by_count[1], by_count[last])
    return result_of(
        "evaluate",
        backend,
        parameters={
            "batch_size": batch_size,
            "train_steps": taken,
            "images": len(timed.test_labels),
            "checkpoint": None if checkpoint is None else verdicts.origin(checkpoint),
            "seed": seed,
            "rounds": rounds,
            "budget": budget,
        },
        cases=cases,
        metrics={
            "images_per_second": speeds[last].estimate,
            "images_per_second_one_device": speeds[1].estimate,
            "evaluation_speedup": speedup.estimate,
            "test_accuracy": counted[counted_devices(last)] / len(data.test_labels),
            "correct_images": counted[counted_devices(last)],
            "unequal_images": len(compared.unequal),
        },
        intervals={
            "images_per_second": speeds[last],
            "images_per_second_one_device": speeds[1],
            "evaluation_speedup": speedup,
        },
        limits={"evaluation_speedup": float(last)} if last > 1 else {},
        explanation=verdicts.about_counts(compared),
        answer=Answer(
            (verdicts.about_division(last, batch_size), verdicts.about_speed(speeds, speedup, cases[0].watch)),
            verdicts.what_would_change(backend, speedup, cases[0].watch, batch_size),
        ),
        notes=(verdicts.about_network(checkpoint, taken, steps_of(data, wanted)),),
        error=compared.error,
        compared="scores",
        of="the largest score",
        checks={"max_device_difference": compared.device_difference},
        problems=compared.problems,
        # That the counts are equal stays true on a machine that was disturbed.
        judges_times=False,
        data=data.source,
        series={
            "devices": tuple(map(float, params)),
            "images_per_second": tuple(speed.estimate for speed in speeds.values()),
            "correct_images": tuple(map(float, counted.values())),
        },
    )


def _as_many_as_fit(
    backend: Backend, params: Mapping[int, list[Array]], data: Dataset, batch_size: int, rounds: int, seconds: float
) -> Dataset:
    """Return the data with as many test images as can be timed so often in so many seconds, in whole shards."""
    shards = max(params) * batch_size
    some = first_images(data, shards)
    (_, taken), _ = _count(backend, params[1], some, batch_size)
    # Each number of devices, and its units; once more for the warm-up, and once to make the units.
    fitting = int(seconds / ((rounds + 2) * 2 * len(params) * taken))
    return first_images(data, max(1, fitting) * shards)


def _time(
    backend: Backend,
    network: Network,
    params: Mapping[int, list[Array]],
    data: Dataset,
    batch_size: int,
    rounds: int,
    seconds: float,
) -> tuple[Case, ...]:
    """Time the evaluation on every number of devices in turn, and what its kernels take by themselves."""

    def take(own: list[Array]) -> Timing:
        return _count(backend, own, data, batch_size)[0]

    def step(count: int) -> Step:
        def launch(recording: Backend) -> object:
            own = placed(recording, network, count)
            return launch_counts(recording, own, data, count * batch_size)

        return launch

    units = units_of(backend, {counted_devices(count): step(count) for count in params})
    takes = {counted_devices(count): partial(take, own) for count, own in params.items()}
    return tuple(take_in_turn(backend, takes, rounds, units=units, budget=seconds).values())


def _count(backend: Backend, params: list[Array], data: Dataset, batch_size: int) -> tuple[Timing, int]:
    """Evaluate on idle devices; return the timing, until all was launched and until all was added up, and the count."""
    backend.waitall()
    start = perf_counter()
    counts = launch_counts(backend, params, data, len(params) * batch_size)
    dispatched = perf_counter() - start
    correct = add_counts(backend, params, counts)
    return (dispatched, perf_counter() - start), correct


EXPERIMENT = Experiment(
    name="evaluate",
    position=8,
    exercises=(Exercise(4, "How is the test accuracy computed on several devices, and how fast?"),),
    run=run,
    case="1 device",
    metric="evaluation_speedup",
    metric_means="how many times as many images a second all devices classify as one does: 1 is no gain",
    curves=Curves(
        over="devices",
        quantity="images_per_second",
        x_title="devices",
        y_title="images a second",
        log_x=False,
        in_place_of_times=False,
        caption="Images of the test set a second; the accuracy is the same on every number of devices.",
    ),
    calibrated=("images",),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3}},
)
