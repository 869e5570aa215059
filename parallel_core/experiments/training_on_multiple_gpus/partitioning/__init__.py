"""Partitioning: which way of dividing a network over devices is best, and when?

Book: Dive into Deep Learning, "Training on Multiple GPUs", the figure of three ways to divide a network: network
partitioning, layer-wise partitioning and data parallelism.

Prediction: Layers and channels exchange activations, which grow with the batch and with the width; data parallelism
exchanges gradients, which grow with the square of the width and not with the batch. So data parallelism moves least on
a narrow network and most on a wide one, and its devices meet once a step, while those that divide every layer meet at
every layer. Network partitioning without micro-batches keeps one device busy at a time: it cannot beat one device.

Method: The same step of gradient descent, of a convolution and two dense layers, is taken in five ways: on one device,
with the layers on different devices (the whole batch at once, and cut into micro-batches), with every layer's channels
or units divided, and with the batch divided. The batch is on the devices before the step begins. Only the number of
channels and units changes, from narrow to wide in doublings. Bytes and waits are read off a recording of the step. That
all ways take the same step is checked in float64, where rounding hardly ever turns a ReLU on or off.

Look at: The curves of `seconds` over the width; `data_parallel_advantage`, the time of the fastest other division over
that of data parallelism on the widest network; the bytes and waits of each division.

Read: Above 1 data parallelism wins. Layers on different devices, and divided layers, compute a part of the forward pass
again on the way back, as pipelines do to save memory; data parallelism does not, so equal times would mean that the
others use their devices better. An allreduce counts as a wait for each device that brings a value or fetches the sum.
Logical devices on a CPU copy through memory that they share: bytes are cheap there, and dear between GPUs without a
fast link; what is seen there is mostly what it costs to launch and to wait.
"""

from collections.abc import Mapping
from functools import partial
from itertools import starmap
from typing import Annotated

import numpy as np

import backends
from backends import Array, Backend
from parallel_core.errors import RequestError
from parallel_core.experiments.runner.changes import LESS_NOISE, MORE_CORES, larger, with_queue
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.experiments.training_on_multiple_gpus.partitioning.layer_wise import LAYER_WISE
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import (
    CHANNELS,
    Batch,
    Parameters,
    initial_parameters,
    synthetic_batch,
)
from parallel_core.experiments.training_on_multiple_gpus.partitioning.pipeline import network_partitioning
from parallel_core.experiments.training_on_multiple_gpus.partitioning.strategy import (
    DATA_PARALLELISM,
    ONE_DEVICE,
    Strategy,
)
from parallel_core.experiments.training_on_multiple_gpus.training_steps import doublings, swept, works_of_step
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.recording import Recording
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.task_graph import Task, crossings, without_loads

__all__ = ["EXPERIMENT", "error_of_steps", "program", "recorded_step", "strategies"]

UNDIVIDED, WHOLE, CUT = "one device", "network partitioning", "network partitioning in micro-batches"
DIVIDED_LAYERS, DIVIDED_BATCH = "layer-wise partitioning", "data parallelism"
STEPS = 3
"""Steps in one timing: several, so that an engine may begin the next one before the last one has ended."""
CHECKED_STEPS = 2
RATE = 0.01
"""For the average over the rows."""


def strategies(micro_batches: int) -> dict[str, Strategy]:
    """Return the ways to take a step, by name, in the order of the book's figure."""
    return {
        UNDIVIDED: ONE_DEVICE,
        WHOLE: network_partitioning(1),
        CUT: network_partitioning(micro_batches),
        DIVIDED_LAYERS: LAYER_WISE,
        DIVIDED_BATCH: DATA_PARALLELISM,
    }


def program(
    trial: Trial,
    narrow: Annotated[int, Parameter("Width of the first network.")] = 1,
    wide: Annotated[int, Parameter("Width up to which it is doubled.")] = 4,
    batch: Annotated[int, Parameter("Images, over all devices.")] = 64,
    micro_batches: Annotated[int, Parameter("Pieces of a batch.")] = 4,
) -> None:
    """Time a step of every strategy for networks of 8 channels and 32 units × width, from narrow to wide in doublings.

    Raises RequestError for a single device, and for what leaves a device or a micro-batch without anything to do.
    """
    trial.refuse_single_device("partitioning", "divides a network")
    backend, devices = trial.backend, len(trial.devices)
    _refuse_what_cannot_be_divided(devices, narrow, wide, batch, micro_batches)
    ways, rows = strategies(micro_batches), synthetic_batch(batch)
    errors: list[float] = []
    moved: dict[str, list[float]] = {f"bytes {name}": [] for name in ways if name != UNDIVIDED}
    widths = tuple(doublings(narrow, wide))
    for width in swept(trial, widths, widths):
        initial = initial_parameters(width)
        errors.append(error_of_steps(backend, ways, initial, synthetic_batch(2 * max(devices, micro_batches) + 1)))
        recorded = {name: recorded_step(backend, ways[name], initial, rows) for name in ways if name != UNDIVIDED}
        for name, tasks in recorded.items():
            moved[f"bytes {name}"].append(float(sum(task.bytes for task in tasks)))
        for name, way in ways.items():
            bare = works_of_step(backend, partial(_take_step, way, initial, rows), STEPS)
            work = _steps(backend, way, initial, rows)
            trial.time(f"{name}, width {width}", work, bare=bare, repeats=STEPS, curve=name, at=width)
    trial.errors["changes of the parameters"] = largest_of(errors)
    trial.described["series"] = {name: tuple(values) for name, values in moved.items()}

    mine, one, whole, cut = (f"{name}, width {width}" for name in (DIVIDED_BATCH, UNDIVIDED, WHOLE, CUT))
    others = [f"{name}, width {width}" for name in (WHOLE, CUT, DIVIDED_LAYERS)]
    fastest = min(others, key=lambda name: trial.cases[name].median)
    trial.found_by(ADVANTAGE.name, lambda times: times[fastest] / times[mine])
    trial.found_by(SPEEDUP.name, lambda times: times[one] / times[mine])
    trial.found_by(PIECES.name, lambda times: times[whole] / times[cut])
    for name, tasks in recorded.items():
        plain = name.replace(" ", "_").replace("-", "_")
        trial.found(f"{plain}_bytes", moved[f"bytes {name}"][-1])
        trial.found(f"{plain}_waits", float(crossings(tasks)))


def _refuse_what_cannot_be_divided(devices: int, narrow: int, wide: int, batch: int, micro_batches: int) -> None:
    """Raise RequestError if a device or a micro-batch would have nothing to do."""
    if devices > CHANNELS * narrow:
        raise RequestError(
            f"the narrowest network has {CHANNELS * narrow} channels for {devices} devices: choose a larger --narrow"
        )
    if narrow > wide:
        raise RequestError(f"the narrowest network ({narrow}) must not be wider than the widest ({wide})")
    if batch < max(devices, micro_batches):
        raise RequestError(
            f"a batch of {batch} leaves one of {devices} devices or {micro_batches} micro-batches without rows: "
            f"choose a larger --batch"
        )


def _steps(backend: Backend, way: Strategy, parameters: Parameters, batch: Batch) -> Work:
    """Take several steps in a row in float32, each time from where the last ones led."""
    loaded = way.load(backend, *_single_precision(*batch))
    placed = way.place(backend, _single_precision(*parameters))

    def launch() -> Array:
        nonlocal placed
        for _ in range(STEPS):
            placed = way.step(backend, placed, loaded, RATE / len(batch[1]))
        return placed

    return Work(launch)


def _take_step(way: Strategy, parameters: Parameters, batch: Batch, backend: Backend) -> Array:
    """Load parameters and a batch in float32, and launch a step."""
    loaded = way.load(backend, *_single_precision(*batch))
    return way.step(backend, way.place(backend, _single_precision(*parameters)), loaded, RATE / len(batch[1]))


def recorded_step(backend: Backend, way: Strategy, parameters: Parameters, batch: Batch) -> tuple[Task, ...]:
    """Take one step in float32 and return its tasks, without the loading of parameters and batch."""
    recording = Recording(backend)
    _take_step(way, parameters, batch, recording)
    return without_loads(recording.tasks)


def error_of_steps(backend: Backend, ways: Mapping[str, Strategy], parameters: Parameters, batch: Batch) -> float:
    """Take steps from these parameters by each strategy; compare the change of the parameters with NumPy's.

    Returns the largest difference as a share of the parameter's largest change. Parameters and batch keep their dtype.
    """
    reference = backends.load("numpy", devices=1, threads_per_device=backend.threads_per_device)
    expected = _changes(reference, ONE_DEVICE, parameters, batch)
    pairs = (zip(_changes(backend, way, parameters, batch), expected, strict=True) for way in ways.values())
    return largest_of(error for each in pairs for error in starmap(relative_error, each))


def _changes(backend: Backend, way: Strategy, parameters: Parameters, batch: Batch) -> list[np.ndarray]:
    loaded = way.load(backend, *batch)
    placed = way.place(backend, parameters)
    for _ in range(CHECKED_STEPS):
        placed = way.step(backend, placed, loaded, RATE)
    return [new - old for new, old in zip(way.gather(backend, placed), parameters, strict=True)]


def _single_precision(*arrays: np.ndarray) -> Parameters:
    """Turn float64 into float32; labels stay as they are."""
    return tuple(x.astype(np.float32) if x.dtype == np.float64 else x for x in arrays)


ADVANTAGE = Metric(
    "data_parallel_advantage",
    means="the fastest other division's time over that of a divided batch: above 1 the divided batch wins",
    bands=(
        Band(LOWEST, "slower", "Another division was faster than data parallelism on the widest network"),
        Band(0.9, "equal", "Data parallelism was about as fast as the fastest other division on the widest network"),
        Band(1.1, "faster", "Data parallelism was faster than every other division on the widest network"),
    ),
)
SPEEDUP = Metric(
    "data_parallel_speedup",
    bands=(
        Band(LOWEST, "slower", "One device was faster than data parallelism"),
        Band(0.9, "equal", "Data parallelism was about as fast as one device"),
        Band(1.1, "faster", "Data parallelism was faster than one device"),
    ),
)
PIECES = Metric(
    "micro_batch_speedup",
    bands=(
        Band(LOWEST, "slower", "Cutting the batch into micro-batches cost more than it gave"),
        Band(0.9, "equal", "Cutting the batch into micro-batches changed little"),
        Band(1.1, "faster", "Cutting the batch into micro-batches paid"),
    ),
)

EXPERIMENT = Experiment(
    name="partitioning",
    position=6,
    remark="the figure of three ways to divide a network",
    program=program,
    case="data parallelism, width 4",
    metrics=(ADVANTAGE, SPEEDUP, PIECES),
    changes=(
        with_queue("devices should work at the same time, and a division be faster than one device"),
        LESS_NOISE,
        MORE_CORES,
        larger("wide", "A wider network", "data parallelism moves more bytes; with a larger --batch the others do"),
    ),
    curves=Curves(
        over="width",
        quantity="seconds",
        x_title="width of the network",
        y_title="seconds a step",
        log_y=True,
        dotted=("one device",),
        caption="A network of width 1 has 8 channels and 32 units. The dotted curve is of one device.",
    ),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3}},
)
