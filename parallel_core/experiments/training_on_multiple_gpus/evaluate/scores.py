"""The scores of each test image, on any number of devices and in NumPy, and whether they lead to the same classes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

import backends
from backends import Array, Backend, Ops
from parallel_core.experiments.training_on_multiple_gpus.evaluate.networks import Network, placed
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.progress import tell
from parallel_core.training.batches import as_input
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import count_correct, network
from parallel_core.training.loop import add_counts
from parallel_core.training.step import devices_of, split_batch

__all__ = ["Compared", "Unequal", "first_images", "numpy_scores", "scores_on"]

ROUNDING = 1e-4
"""The largest difference of scores, as a share of the largest, that is laid to rounding."""


def scores_on(backend: Backend, params: Sequence[Array], data: Dataset, batch_size: int) -> tuple[np.ndarray, int]:
    """Compute the scores (images, 10) on all devices of `params`, with shards of `batch_size` images.

    Return with them how many images the devices counted as correct, added up over them.
    """
    scores = _scores_and_count(backend.ops)
    devices = devices_of(backend, params)
    tell("scores of each image", 0.0)
    launched: list[list[Array]] = []
    for start in range(0, len(data.test_labels), batch_size * len(devices)):
        rows = slice(start, start + batch_size * len(devices))
        shards = split_batch(backend, as_input(data.test_images[rows]), data.test_labels[rows], devices)
        launched.append([backend.launch(scores, p, x, y) for p, (x, y) in zip(params, shards, strict=True)])
    correct = add_counts(backend, params, [[one[1] for one in each] for each in launched])
    computed = [backend.to_numpy(one[0]) for each in launched for one in each]
    return np.concatenate([own for own in computed if own.ndim == 2]), correct


def first_images(data: Dataset, count: int) -> Dataset:
    """Return the data with so many test images at most."""
    return replace(data, test_images=data.test_images[:count], test_labels=data.test_labels[:count])


def numpy_scores(parameters: Network, data: Dataset, batch_size: int, left: Callable[[], float]) -> np.ndarray:
    """Compute NumPy's scores of the first images: of as many as it begins while seconds are left, and of some."""
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    params = placed(reference, parameters, 1)
    computed: list[np.ndarray] = []
    for start in range(0, len(data.test_labels), batch_size):
        if computed and left() <= 0:
            break
        tell("scores in NumPy", start / len(data.test_labels))
        images = as_input(data.test_images[start : start + batch_size])
        shard = reference.asarray(images, reference.devices[0])
        computed.append(reference.to_numpy(reference.launch(network(reference.ops), params[0], shard)))
    return np.concatenate(computed)


def _scores_and_count(ops: Ops) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    lenet, nothing = network(ops), count_correct(ops)

    def scores_and_count(parameters: Array, images: Array, labels: Array) -> tuple[Array, Array]:
        if images.shape[0] == 0:
            # Frameworks refuse to convolve no images; these scores have one dimension less.
            return ops.zeros_like(parameters[-1]), nothing(parameters, images, labels)
        scores = lenet(parameters, images)
        return scores, ops.count_correct(scores, labels)

    return scores_and_count


@dataclass(frozen=True)
class Unequal:
    """A test image that is put into another class on one side than on another."""

    image: int
    where: str
    margin: float
    """How far its two highest scores are apart, as a share of the largest score of all."""


@dataclass(frozen=True)
class Compared:
    """What was computed on each number of devices, named `1 device` first, and in NumPy for the first images."""

    scores: Mapping[str, np.ndarray]
    numpy: np.ndarray
    labels: np.ndarray
    counted: Mapping[str, int]
    """How many images the devices themselves counted as correct."""

    @property
    def one(self) -> np.ndarray:
        """The scores on one device."""
        return next(iter(self.scores.values()))

    @cached_property
    def error(self) -> float:
        """The largest difference from NumPy's scores, as a share of the largest score."""
        return largest_of(relative_error(each[: len(self.numpy)], self.numpy) for each in self.scores.values())

    @cached_property
    def device_difference(self) -> float:
        """The largest difference of the scores on several devices from those on one, as a share of the largest."""
        return largest_of(relative_error(each, self.one) for each in self.scores.values())

    @cached_property
    def unequal(self) -> tuple[Unequal, ...]:
        """The images whose class is not the same everywhere, each named once."""
        found: dict[int, Unequal] = {}
        highest = np.sort(self.one, axis=1)
        margins = (highest[:, -1] - highest[:, -2]) / (np.max(np.abs(self.one)) or 1.0)
        for where, each in {**self.scores, "NumPy": self.numpy}.items():
            for image in np.flatnonzero(each.argmax(axis=1) != self.one[: len(each)].argmax(axis=1)):
                found.setdefault(int(image), Unequal(int(image), where, float(margins[image])))
        return tuple(found[image] for image in sorted(found))

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the devices' numbers are wrong: scores apart beyond rounding, counts that are not those of the scores."""
        problems = []
        if not self.device_difference < ROUNDING:
            problems.append(
                f"the scores depend on the number of devices, by {self.device_difference:.1e} of the largest"
            )
        for where, each in self.scores.items():
            correct = int(np.sum(each.argmax(axis=1) == self.labels))
            # Images within rounding may fall on either side when they are computed again.
            if abs(correct - self.counted[where]) > len(self.unequal):
                problems.append(f"{where} counted {self.counted[where]:,} correct images, and their scores {correct:,}")
        return tuple(problems)
