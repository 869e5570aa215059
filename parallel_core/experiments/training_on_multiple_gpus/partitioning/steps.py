"""Take steps by a strategy: timed, recorded, and checked against NumPy's on one device."""

from collections.abc import Mapping
from functools import partial

import numpy as np

import backends
from backends import Array, Backend
from parallel_core.experiments.measuring import largest_error, time_in_turn
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import Batch, Parameters
from parallel_core.experiments.training_on_multiple_gpus.partitioning.strategy import ONE_DEVICE, Strategy
from parallel_core.experiments.training_on_multiple_gpus.steps_as_units import Step, units_of
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.result import Case
from parallel_core.measurement.task_graph import Task, without_loads

__all__ = ["error_of_steps", "record_step", "time_steps"]

STEPS = 3
"""Steps in one timing: several, so that an engine may begin the next one before the last one has ended."""
CHECKED_STEPS = 2
RATE = 0.01
"""For the average over the rows."""


def time_steps(
    backend: Backend, ways: Mapping[str, Strategy], parameters: Parameters, batch: Batch, rounds: int, budget: float
) -> dict[str, Case]:
    """Time a step of each strategy in float32, several in a row; return the cases, of one step each, by name.

    There are fewer rounds, but one at least, if they would take more than the budget of seconds.
    """
    images, labels = _single_precision(*batch)
    loaded = {name: way.load(backend, images, labels) for name, way in ways.items()}
    placed = {name: way.place(backend, _single_precision(*parameters)) for name, way in ways.items()}

    def take_steps(name: str) -> Array:
        for _ in range(STEPS):
            placed[name] = ways[name].step(backend, placed[name], loaded[name], RATE / len(labels))
        return placed[name]

    work = {name: partial(take_steps, name) for name in ways}
    units = units_of(backend, {name: _first_step(way, parameters, batch) for name, way in ways.items()}, STEPS)
    return time_in_turn(backend, work, rounds, dict.fromkeys(ways, STEPS), units, budget)


def record_step(backend: Backend, way: Strategy, parameters: Parameters, batch: Batch) -> tuple[Task, ...]:
    """Take one step in float32 and return its tasks, without the loading of parameters and batch."""
    recording = Recording(backend)
    _first_step(way, parameters, batch)(recording)
    return without_loads(recording.tasks)


def _first_step(way: Strategy, parameters: Parameters, batch: Batch) -> Step:
    """Make the function that takes a step in float32, with parameters and a batch of its own."""

    def take(backend: Backend) -> Array:
        loaded = way.load(backend, *_single_precision(*batch))
        return way.step(backend, way.place(backend, _single_precision(*parameters)), loaded, RATE / len(batch[1]))

    return take


def error_of_steps(backend: Backend, ways: Mapping[str, Strategy], parameters: Parameters, batch: Batch) -> float:
    """Take steps from these parameters by each strategy; compare the change of the parameters with NumPy's.

    Returns the largest difference as a share of the parameter's largest change. Parameters and batch keep their dtype.
    """
    reference = backends.load("numpy", devices=1, threads_per_device=backend.threads_per_device)
    expected = _changes(reference, ONE_DEVICE, parameters, batch)
    return largest_of([largest_error(_changes(backend, way, parameters, batch), expected) for way in ways.values()])


def _changes(backend: Backend, way: Strategy, parameters: Parameters, batch: Batch) -> list[np.ndarray]:
    loaded = way.load(backend, *batch)
    placed = way.place(backend, parameters)
    for _ in range(CHECKED_STEPS):
        placed = way.step(backend, placed, loaded, RATE)
    return [new - old for new, old in zip(way.gather(backend, placed), parameters, strict=True)]


def _single_precision(*arrays: np.ndarray) -> Parameters:
    """Turn float64 into float32; labels stay as they are."""
    return tuple(x.astype(np.float32) if x.dtype == np.float64 else x for x in arrays)
