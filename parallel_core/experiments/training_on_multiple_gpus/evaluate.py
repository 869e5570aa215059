"""Evaluation: is a network's accuracy the same on every number of devices, and how much faster are
more of them?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 4: implement the computation of
the test accuracy on several devices.

Prediction: A trained network classifies each image by itself. So the images can be divided over
devices that hold the same parameters, each counts those that it has classified correctly, and the
sum of the counts is the number that one device finds: exactly the same predictions, on every
framework. Nothing but a number travels between devices, so k devices should give a speed-up of
nearly k.

Method: LeNet is trained for a few steps on all devices. Then the test set is evaluated on 1, 2, 4,
… of them up to all, in turn, as many images as fit into the budget. A device has shards of
`--batch-size` images whatever the number of devices, so that their number is the only difference.
The scores of all images are compared image by image between numbers of devices, and with NumPy's as
far as the budget lasts.

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
from parallel_core.experiments.runner.trial import LARGEST_ERROR, Trial, budget_ended
from parallel_core.experiments.training_steps import ENLARGED, counted_devices, placed
from parallel_core.experiments.workloads import doublings, units_of_step
from parallel_core.measurement.checks import devices_differ, largest_of, relative_error
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Note
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import Timing, measure
from parallel_core.training.batches import Settings, as_input, steps_of
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import network, start_of
from parallel_core.training.loop import add_counts, continue_training, launch_counts
from parallel_core.training.step import devices_of

TRAINING_SHARE, NUMPY_SHARE, TIMED_SHARE = 0.3, 0.55, 0.95
"""The shares of the budget until which the network is trained, NumPy may begin another shard, and
cases are timed.
"""


def program(
    trial: Trial,
    data: Dataset,
    batch_size: Annotated[int, Parameter("Of one device.")] = 500,
    train_steps: Annotated[int, Parameter("Steps of training before, at most.")] = 100,
    images: Annotated[
        int | None, Chosen("Test images in a timing. Default: as many as fit.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Evaluate one network on 1, 2, 4, … devices: compare its scores, and time it.

    It is trained for `train_steps` steps, or fewer if they would take too much of the budget.
    Raises NotFiniteError if the training diverges.
    """
    backend = trial.backend
    # From the book's own weights, accuracy would stay at chance in so few steps.
    training = Settings(1, 64, 0.1, limit=train_steps, seed=seed, initial_scale=ENLARGED)
    parameters = trained_briefly(trial, data, training)
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
    timed_data = data.tested_on(images)
    timed_images = len(timed_data.test_labels)
    trial.parameters["images"] = timed_images

    def launch_on(count: int, backend: Backend) -> object:
        new_params = placed(backend, parameters, count)
        return launch_counts(backend, new_params, timed_data, count * batch_size)

    for count in counts:
        bare = units_of_step(backend, partial(launch_on, count))
        take = partial(evaluated, backend, params[count], timed_data, batch_size)
        trial.time(counted_devices(count), take=take, bare=bare)
    cases = trial.run(TIMED_SHARE)

    on_one, on_all = counted_devices(1), counted_devices(all_devices)
    trial.found_by("images_per_second", lambda times: timed_images / times[on_all])
    trial.found_by("images_per_second_one_device", lambda times: timed_images / times[on_one])
    if all_devices > 1:
        trial.found_by(SPEEDUP.name, ratio(on_one, on_all))
    trial.found("test_accuracy", correct[all_devices] / len(data.test_labels))
    trial.found("correct_images", correct[all_devices])
    for count in counts:
        seconds = cases[counted_devices(count)].median
        trial.points[""][float(count)] = timed_images / seconds
    trial.described["data"] = data.source
    trial.described["series"] = {"correct_images": tuple(map(float, correct.values()))}


def _images_that_fit(
    trial: Trial, params: Mapping[int, list[Array]], data: Dataset, batch_size: int
) -> int:
    """Return the number of test images with which all timings fit the budget.

    The time on one device is taken for all numbers of devices.
    """
    images_at_once = max(params) * batch_size
    few_images = data.tested_on(images_at_once)
    _, seconds = evaluated(trial.backend, params[1], few_images, batch_size)
    # A round evaluates on each number of devices, and once more as units. The warm-up, and making
    # the units, take as long as a round each.
    evaluations = (trial.rounds + 2) * 2 * len(params)
    times = int(trial.left(TIMED_SHARE) / (evaluations * seconds))
    return images_at_once * max(1, times)


def trained_briefly(trial: Trial, data: Dataset, settings: Settings) -> tuple[np.ndarray, ...]:
    """Train on all devices for the steps that the settings allow; return the parameters.

    The training ends early if its share of the budget is spent; a note says so.
    """
    params = placed(trial.backend, start_of(settings))
    wanted = steps_of(data, settings)
    tell("training", 0.0)
    for progress in continue_training(trial.backend, params, data.tested_on(1), settings, every=10):
        tell("training", len(progress.losses) / wanted)
        if trial.left(TRAINING_SHARE) <= 0:
            break
    steps = len(progress.losses)
    trial.parameters["train_steps"] = steps
    if steps < wanted:
        trial.notes.append(budget_ended("the training", f"{steps} of {wanted} steps"))
    return trial.backend.to_numpy(params[0])


def scores_on(
    backend: Backend,
    params: list[Array],
    data: Dataset,
    size: int,
    left: Callable[[], float] = lambda: math.inf,
) -> np.ndarray:
    """Compute the scores (images, 10) of the test images, on all devices of `params`.

    A shard is `size` images on one device. No shards are launched when no seconds are `left()`, but
    at least one on every device, so the scores may be of the first images only.
    """
    lenet = network(backend.ops)
    devices = devices_of(backend, params)
    launched: list[Array] = []
    images_at_once = size * len(devices)
    for start in range(0, len(data.test_labels), images_at_once):
        if launched and left() <= 0:
            break
        tell(f"scores in {backend.name}", start / len(data.test_labels))
        images = as_input(data.test_images[start : start + images_at_once])
        shards = backend.split_and_load(images, devices)
        # With fewer images than devices the last shards are empty, and frameworks refuse those.
        filled = min(len(images), len(devices))
        for parameters, shard in zip(params[:filled], shards[:filled], strict=True):
            launched.append(backend.launch(lenet, parameters, shard))
    return np.concatenate([backend.to_numpy(scores) for scores in launched])


def compare(
    trial: Trial,
    scores: Mapping[int, np.ndarray],
    expected: np.ndarray,
    labels: np.ndarray,
    counted: Mapping[int, int],
) -> None:
    """Compare the scores on each number of devices with NumPy's, and with those on one device.

    `expected` are NumPy's scores, perhaps of the first images only. `counted` are the correct
    images that each number of devices counted, which must agree with its scores.
    """
    one_device, checked = scores[1], len(expected)
    first_scores = [on_devices[:checked] for on_devices in scores.values()]
    trial.check("scores", first_scores, [expected] * len(scores))
    difference = largest_of(
        relative_error(on_devices, one_device) for on_devices in scores.values()
    )
    trial.checks["max_device_difference"] = difference
    if not difference < LARGEST_ERROR:
        trial.problems.append(devices_differ("scores", difference))
    if checked < len(one_device):
        images = f"{checked:,} of {len(one_device):,} images"
        trial.notes.append(budget_ended("NumPy's scores", images))
    unequal = _unequal_images(scores, expected)
    trial.found(UNEQUAL.name, len(unequal))
    count_alike(trial, scores)
    trial.notes += _notes_on_unequal(unequal, one_device)
    for count, on_devices in scores.items():
        correct = int(np.sum(on_devices.argmax(axis=1) == labels))
        # An unequal image may be correct or not, each time that it is computed.
        if abs(correct - counted[count]) > len(unequal):
            trial.problems.append(counts_differ(count, counted[count], correct))


def counts_differ(devices: int, counted: int, by_scores: int) -> Note:
    """Say how many correct images were counted, and how many there are by the scores."""
    return Note(
        "counts-differ",
        f"{counted_devices(devices)} counted {counted:,} correct images, and their scores "
        f"{by_scores:,}",
    )


def unequal_image(image: int, where: str, margin: float) -> Note:
    """Say where an image has another class than on one device.

    `margin` is the difference of its two highest scores there, as a share of the largest of all.
    """
    return Note(
        "unequal-image",
        f"Image {image} has another class {where} than on one device: its two highest scores are "
        f"{margin:.0e} of the largest apart.",
    )


def _unequal_images(scores: Mapping[int, np.ndarray], expected: np.ndarray) -> dict[int, str]:
    """Return the images that have another class than on one device, with where they have it first.

    For example `{17: "on 2 devices", 40: "in NumPy"}`.
    """
    classes_on_one = scores[1].argmax(axis=1)
    all_scores = {f"on {counted_devices(count)}": array for count, array in scores.items()}
    all_scores["in NumPy"] = expected
    unequal: dict[int, str] = {}
    for where, array in all_scores.items():
        classes = array.argmax(axis=1)
        is_unequal = classes != classes_on_one[: len(classes)]
        for image in np.flatnonzero(is_unequal):
            unequal.setdefault(int(image), where)
    return unequal


def _notes_on_unequal(unequal: Mapping[int, str], one_device: np.ndarray) -> list[Note]:
    """Say of up to three unequal images how close their two highest scores on one device are."""
    notes = []
    for image in sorted(unequal)[:3]:
        second, highest = np.sort(one_device[image])[-2:]
        margin = (highest - second) / np.max(np.abs(one_device))
        notes.append(unequal_image(image, unequal[image], float(margin)))
    return notes


def count_alike(trial: Trial, scores: Mapping[int, np.ndarray]) -> None:
    """Count the images that have the same class on every number of devices.

    Nothing is counted if there is only one number.
    """
    if len(scores) == 1:
        return
    classes = np.array([on_devices.argmax(axis=1) for on_devices in scores.values()])
    is_alike = (classes == classes[0]).all(axis=0)
    witness = "the scores on every number of devices"
    trial.count(ALIKE.name, int(is_alike.sum()), len(is_alike), witness)


def evaluated(backend: Backend, params: list[Array], data: Dataset, batch_size: int) -> Timing:
    """Evaluate a network; return the seconds until all was launched, and until all was counted."""
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
    question="Is accuracy the same on more devices?",
    position=7,
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
