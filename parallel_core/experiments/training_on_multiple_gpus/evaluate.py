"""Evaluation: is a network's accuracy the same on every number of devices, and how much faster are
more of them?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 4: implement the computation of
the test accuracy on several devices.

Prediction: A trained network classifies each image by itself. So the images can be divided over
devices that hold the same parameters, each counts those that it has classified correctly, and the
sum of the counts is the number that one device finds: exactly the same predictions, on every
framework. Nothing but a number travels between devices, so k devices should give a speed-up of
nearly k.

Method: LeNet is trained for a few steps on all devices, or read from `--checkpoint`. Then the test
set is evaluated on 1, 2, 4, … of them up to all, in turn, as many images as fit into the budget. A
device has shards of `--batch-size` images whatever the number of devices, so that their number is
the only difference. The scores of all images are compared image by image between numbers of
devices, and with NumPy's as far as the budget lasts.

Look at: How many images have the same class on one device as on more, which answers first and which
no other work on the machine changes; `evaluation_speedup`, the images a second on all devices over
those on one; `unequal_images`, those that are not classified alike everywhere, NumPy included; the
curve of images a second over the number of devices.

Read: The count may differ where an image's two highest scores are closer to each other than
rounding: a shard of another length may be summed in another order. The notes name such images. A
larger difference is an error, and makes the result invalid. If devices share cores, or on a
synchronous engine, more devices cannot be faster.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np

import backends
from backends import Array, Backend
from parallel_core.experiments.runner.changes import (
    LESS_NOISE,
    MORE_CORES,
    Change,
    larger,
    with_queue,
)
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.declaration import Exercise, Experiment
from parallel_core.experiments.runner.formulas import ratio
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, gained_on_devices
from parallel_core.experiments.runner.parameters import Chosen, Parameter, Seed
from parallel_core.experiments.runner.trial import LARGEST_ERROR, Trial
from parallel_core.experiments.training_steps import counted_devices, enlarged_start, placed
from parallel_core.experiments.workloads import doublings, units_of_step
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.progress import tell
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import Timing, measure
from parallel_core.training.batches import Settings, as_input, steps_of
from parallel_core.training.checkpoints import Checkpoint, read_checkpoint
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import network
from parallel_core.training.loop import add_counts, continue_training, launch_counts
from parallel_core.training.step import devices_of

CHECKPOINT = Parameter(
    "Evaluate the training that is kept there.",
    metavar="DIR",
    parse=lambda text: read_checkpoint(Path(text)),
)
TRAINING_SHARE, NUMPY_SHARE, TIMED_SHARE = 0.3, 0.55, 0.95
"""Shares of the budget.

Until when is trained, until when NumPy may begin another shard, and until when is timed.
"""


def program(
    trial: Trial,
    data: Dataset,
    batch_size: Annotated[int, Parameter("Of one device.")] = 500,
    train_steps: Annotated[int, Parameter("Steps of training before, at most.")] = 100,
    checkpoint: Annotated[Checkpoint | None, CHECKPOINT] = None,
    images: Annotated[
        int | None, Chosen("Test images in a timing. Default: as many as fit.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Evaluate one network on 1, 2, 4, … devices: how many images are correct, and how fast.

    The count must be the same everywhere. A training takes `train_steps` steps, or fewer if they
    would take too much of the budget; there is none with a checkpoint. Raises NotFiniteError if it
    diverges.
    """
    backend = trial.backend
    if checkpoint is None:
        training = Settings(1, 64, 0.1, limit=train_steps, seed=seed)
        parameters = trained_briefly(trial, data, training)
    else:
        parameters = checkpoint.parameters
        trial.parameters |= {"train_steps": 0, "checkpoint": checkpoint.origin}
    counts = doublings(len(backend.devices))
    all_devices = counts[-1]
    params = {count: placed(backend, parameters, count) for count in counts}
    scores = {count: scores_on(backend, params[count], data, batch_size) for count in counts}
    correct = {}
    for count in counts:
        launched = launch_counts(backend, params[count], data, count * batch_size)
        correct[count] = add_counts(backend, params[count], launched)
    numpy = backends.load("numpy", devices=1, threads_per_device=1)
    in_numpy = placed(numpy, parameters, 1)
    expected = scores_on(numpy, in_numpy, data, batch_size, partial(trial.left, NUMPY_SHARE))
    compare(trial, scores, expected, data.test_labels, correct)

    if images is None:
        images = _images_that_fit(trial, params, data, batch_size)
    timed = data.tested_on(images)
    shown = len(timed.test_labels)
    trial.parameters["images"] = shown

    def launch_on(count: int, backend: Backend) -> object:
        return launch_counts(backend, placed(backend, parameters, count), timed, count * batch_size)

    for count in counts:
        bare = units_of_step(backend, partial(launch_on, count))
        take = partial(evaluated, backend, params[count], timed, batch_size)
        trial.time(counted_devices(count), take=take, bare=bare)
    cases = trial.run(TIMED_SHARE)

    on_one, on_all = counted_devices(1), counted_devices(all_devices)
    trial.found_by("images_per_second", lambda times: shown / times[on_all])
    trial.found_by("images_per_second_one_device", lambda times: shown / times[on_one])
    if all_devices > 1:
        trial.found_by(SPEEDUP.name, ratio(on_one, on_all))
    trial.found("test_accuracy", correct[all_devices] / len(data.test_labels))
    trial.found("correct_images", correct[all_devices])
    trial.points[""] = {
        float(count): shown / cases[counted_devices(count)].median for count in counts
    }
    trial.described["data"] = data.source
    trial.described["series"] = {"correct_images": tuple(map(float, correct.values()))}


def _images_that_fit(
    trial: Trial, params: Mapping[int, list[Array]], data: Dataset, batch_size: int
) -> int:
    """Return how many test images fit the budget in every timing, judging by one device."""
    images_at_once = max(params) * batch_size
    _, seconds = evaluated(trial.backend, params[1], data.tested_on(images_at_once), batch_size)
    # Each number of devices, and its units; once more for the warm-up, and once to make the units.
    evaluations = (trial.rounds + 2) * 2 * len(params)
    times = int(trial.left(TIMED_SHARE) / (evaluations * seconds))
    return images_at_once * max(1, times)


def trained_briefly(trial: Trial, data: Dataset, settings: Settings) -> tuple[np.ndarray, ...]:
    """Train on all devices from enlarged weights for one epoch.

    The training ends before if a share of the budget is spent.
    """
    # From the book's own weights so short a training would stay at chance.
    params = placed(trial.backend, enlarged_start(settings.seed, 8.0))
    wanted = steps_of(data, settings)
    tell("training", 0.0)
    for progress in continue_training(trial.backend, params, data.tested_on(1), settings, every=10):
        tell("training", len(progress.losses) / wanted)
        if trial.left(TRAINING_SHARE) <= 0:
            break
    trial.parameters["train_steps"] = steps = len(progress.losses)
    if steps < wanted:
        trial.notes.append(
            f"The budget ended the training after {steps} of {wanted} steps (--budget)."
        )
    return trial.backend.to_numpy(params[0])


def scores_on(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    size: int,
    left: Callable[[], float] = lambda: math.inf,
) -> np.ndarray:
    """Compute the scores (images, 10) on all devices of `params`, with shards of `size` images.

    They are of the first images: as many as are launched while seconds are `left`, one shard on
    every device at least.
    """
    lenet, devices = network(backend.ops), devices_of(backend, params)
    launched: list[Array] = []
    images_at_once = size * len(devices)
    for start in range(0, len(data.test_labels), images_at_once):
        if launched and left() <= 0:
            break
        tell(f"scores in {backend.name}", start / len(data.test_labels))
        images = as_input(data.test_images[start : start + images_at_once])
        shards = zip(params, backend.split_and_load(images, devices), strict=True)
        # Of fewer images than devices the last ones have none, which frameworks refuse to convolve.
        launched += [backend.launch(lenet, p, x) for p, x in islice(shards, len(images))]
    return np.concatenate([backend.to_numpy(scores) for scores in launched])


def compare(
    trial: Trial,
    scores: Mapping[int, np.ndarray],
    expected: np.ndarray,
    labels: np.ndarray,
    counted: Mapping[int, int],
) -> None:
    """Compare the scores on each number of devices with one device's, NumPy's and the counts.

    NumPy's are of the first images only.
    """
    one_device, checked = scores[1], len(expected)
    first_scores = [on_devices[:checked] for on_devices in scores.values()]
    trial.check("scores", first_scores, [expected] * len(scores))
    difference = largest_of(
        relative_error(on_devices, one_device) for on_devices in scores.values()
    )
    trial.checks["max_device_difference"] = difference
    if not difference < LARGEST_ERROR:
        trial.problems.append(
            f"the scores depend on the number of devices, by {difference:.1e} of the largest"
        )
    if checked < len(one_device):
        trial.notes.append(f"NumPy's scores are of the first {checked:,} images (--budget).")
    unequal = _unequal_images(scores, expected)
    trial.found(UNEQUAL.name, len(unequal))
    count_alike(trial, scores)
    # A few are enough as examples.
    for image in sorted(unequal)[:3]:
        second, highest = np.sort(one_device[image])[-2:]
        share = (highest - second) / np.max(np.abs(one_device))
        margin = f"its two highest scores are {share:.0e} of the largest apart"
        trial.notes.append(
            f"Image {image} has another class {unequal[image]} than on one device: {margin}."
        )
    for count, on_devices in scores.items():
        correct = int(np.sum(on_devices.argmax(axis=1) == labels))
        # Images within rounding may fall on either side when they are computed again.
        if abs(correct - counted[count]) > len(unequal):
            counts = f"{counted[count]:,} correct images, and their scores {correct:,}"
            trial.problems.append(f"{counted_devices(count)} counted {counts}")


def _unequal_images(scores: Mapping[int, np.ndarray], expected: np.ndarray) -> dict[int, str]:
    """Return the images that have another class than on one device, with the first such place."""
    classes = scores[1].argmax(axis=1)
    all_scores = {f"on {counted_devices(count)}": row for count, row in scores.items()}
    all_scores["in NumPy"] = expected
    unequal: dict[int, str] = {}
    for computed, row in all_scores.items():
        is_unequal = row.argmax(axis=1) != classes[: len(row)]
        for image in np.flatnonzero(is_unequal):
            unequal.setdefault(int(image), computed)
    return unequal


def count_alike(trial: Trial, scores: Mapping[int, np.ndarray]) -> None:
    """Count the images that have the same class on every number of devices.

    Nothing is counted on a single device, which has only itself to be compared with.
    """
    if len(scores) == 1:
        return
    classes = np.array([of_devices.argmax(axis=1) for of_devices in scores.values()])
    is_alike = (classes == classes[0]).all(axis=0)
    witness = "the scores on every number of devices"
    trial.count(ALIKE.name, int(is_alike.sum()), len(is_alike), witness)


def evaluated(backend: Backend, params: list[Array], data: Dataset, batch_size: int) -> Timing:
    """Evaluate on idle devices.

    Return the seconds until all was launched and until all was added up.
    """
    launch = partial(launch_counts, backend, params, data, len(params) * batch_size)
    return measure(backend, launch, partial(add_counts, backend, params))


SPEEDUP = Metric(
    "evaluation_speedup",
    means="speed-up in images a second of all devices over one: 1 is no gain",
    share=gained_on_devices,
    at_most=lambda result: len(result.backend["devices"]),
    bands=(
        Band(LOWEST, "slower", "All devices classified fewer images a second than one"),
        Band(0.0, "faster", "All devices classified more images a second than one"),
    ),
)
UNEQUAL = Metric(
    "unequal_images",
    means="images that are not classified alike on every number of devices and by NumPy",
    bands=(
        Band(
            LOWEST,
            "equal",
            "All images have the same class on every number of devices and in NumPy",
        ),
        Band(0.5, "rounding", "Some images have another class elsewhere, by rounding"),
    ),
)
ALIKE = Count(
    "classified_alike",
    "images have the same class on one device as on more",
    title="Images classified alike",
    bands=(
        Band(LOWEST, "different", "No, the classes depend on the number of devices"),
        Band(0.99, "rounding", "All but a few images have the same class on more devices"),
        Band(1.0, "equal", "Yes, the predictions are exactly the same on more devices"),
    ),
)

EXPERIMENT = Experiment(
    name="evaluate",
    summary="Is accuracy the same on more devices?",
    position=8,
    exercises=(Exercise(4, "How is the test accuracy computed on several devices, and how fast?"),),
    program=program,
    case="1 device",
    metrics=(SPEEDUP, UNEQUAL),
    counts=(ALIKE,),
    changes=(
        Change(
            lambda answered: len(answered.devices) == 1,
            "More devices (--devices 2): the count stays the same.",
        ),
        with_queue("devices should classify at the same time, and count as many images"),
        LESS_NOISE,
        MORE_CORES,
        larger(
            "batch_size", "Larger shards", "they take fewer launches, and change the speed only"
        ),
    ),
    # That the counts are equal stays true on a machine that was disturbed.
    curves=Curves(
        over="devices",
        quantity="images_per_second",
        x_title="devices",
        y_title="images a second",
        log_x=False,
        in_place_of_times=False,
        caption="Images of the test set a second; the accuracy is the same on every number of "
        "devices.",
    ),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3}},
)
