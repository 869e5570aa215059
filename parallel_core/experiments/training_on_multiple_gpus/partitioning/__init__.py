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
from dataclasses import replace
from typing import Annotated

from backends import Backend
from parallel_core.errors import RequestError
from parallel_core.experiments.measuring import refuse_single_device, result_of
from parallel_core.experiments.runner.declaration import BUDGET, Budget, Experiment, Parameter, Rounds
from parallel_core.experiments.training_on_multiple_gpus.partitioning import verdicts
from parallel_core.experiments.training_on_multiple_gpus.partitioning.data_parallelism import DATA_PARALLELISM
from parallel_core.experiments.training_on_multiple_gpus.partitioning.layer_wise import LAYER_WISE
from parallel_core.experiments.training_on_multiple_gpus.partitioning.network import (
    CHANNELS,
    initial_parameters,
    synthetic_batch,
)
from parallel_core.experiments.training_on_multiple_gpus.partitioning.pipeline import network_partitioning
from parallel_core.experiments.training_on_multiple_gpus.partitioning.steps import (
    error_of_steps,
    record_step,
    time_steps,
)
from parallel_core.experiments.training_on_multiple_gpus.partitioning.strategy import ONE_DEVICE, Strategy
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import doublings
from parallel_core.experiments.training_on_multiple_gpus.sweeping import swept
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.task_graph import crossings
from parallel_core.measurement.verdicts import times_as_long

__all__ = ["EXPERIMENT", "run", "strategies"]

UNDIVIDED, WHOLE, CUT = "one device", "network partitioning", "network partitioning in micro-batches"
DIVIDED_LAYERS, DIVIDED_BATCH = "layer-wise partitioning", "data parallelism"


def strategies(micro_batches: int) -> dict[str, Strategy]:
    """Return the ways to take a step, by name, in the order of the book's figure."""
    return {
        UNDIVIDED: ONE_DEVICE,
        WHOLE: network_partitioning(1),
        CUT: network_partitioning(micro_batches),
        DIVIDED_LAYERS: LAYER_WISE,
        DIVIDED_BATCH: DATA_PARALLELISM,
    }


def run(
    backend: Backend,
    narrow: Annotated[int, Parameter("Width of the first network.")] = 1,
    wide: Annotated[int, Parameter("Width up to which it is doubled.")] = 4,
    batch: Annotated[int, Parameter("Images, over all devices.")] = 64,
    micro_batches: Annotated[int, Parameter("Pieces of a batch.")] = 4,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time a step of every strategy for networks of 8 channels and 32 units × width, from narrow to wide in doublings.

    `batch` is the rows over all devices, which are cut into `micro_batches`. Raises RequestError for a single
    device, for more devices than channels, and for a batch that leaves a device or micro-batch without rows.
    """
    refuse_single_device(backend, "partitioning", "divides a network")
    devices = len(backend.devices)
    _refuse_what_cannot_be_divided(devices, narrow, wide, batch, micro_batches)
    ways = strategies(micro_batches)
    timed: dict[int, dict[str, Case]] = {}
    moved: dict[int, dict[str, int]] = {}
    errors = []
    rows = synthetic_batch(batch)
    widths = tuple(doublings(narrow, wide))
    for width, left in swept(widths, widths, budget):
        initial = initial_parameters(width)
        errors.append(error_of_steps(backend, ways, initial, synthetic_batch(2 * max(devices, micro_batches) + 1)))
        recorded = {name: record_step(backend, ways[name], initial, rows) for name in ways if name != UNDIVIDED}
        moved[width] = {name: sum(task.bytes for task in tasks) for name, tasks in recorded.items()}
        timed[width] = time_steps(backend, ways, initial, rows, rounds, left())
    waits = {name: crossings(tasks) for name, tasks in recorded.items()}

    largest = timed[width]
    other = min((largest[name] for name in (WHOLE, CUT, DIVIDED_LAYERS)), key=lambda case: case.median)
    return result_of(
        "partitioning",
        backend,
        parameters={
            "narrow": narrow,
            "wide": wide,
            "batch": batch,
            "micro_batches": micro_batches,
            "rounds": rounds,
            "budget": budget,
        },
        cases=[replace(case, name=f"{name}, width {width}") for width in timed for name, case in timed[width].items()],
        metrics=_metrics_of(largest, other, moved[width], waits),
        intervals={
            "data_parallel_advantage": times_as_long(other, largest[DIVIDED_BATCH]),
            "data_parallel_speedup": times_as_long(largest[UNDIVIDED], largest[DIVIDED_BATCH]),
            "micro_batch_speedup": times_as_long(largest[WHOLE], largest[CUT]),
        },
        explanation=verdicts.about_width(width, largest, UNDIVIDED),
        answer=Answer(
            (
                *(verdicts.about_width(one, timed[one], UNDIVIDED) for one in sorted(timed)[:1] if one != width),
                verdicts.about_data_parallelism(largest[DIVIDED_BATCH], other, width),
            ),
            verdicts.what_would_change(backend, largest[UNDIVIDED], largest[DIVIDED_BATCH], batch, width),
        ),
        notes=(
            verdicts.about_bytes(moved, (WHOLE, DIVIDED_LAYERS, DIVIDED_BATCH)),
            verdicts.about_crossings(waits),
            verdicts.about_micro_batches(largest[WHOLE], largest[CUT], width, micro_batches),
        ),
        error=largest_of(errors),
        compared="the parameters' changes",
        of="the largest",
        series={
            "width": tuple(map(float, timed)),
            **{f"seconds {name}": tuple(cases[name].median for cases in timed.values()) for name in ways},
            **{f"bytes {name}": tuple(float(of_width[name]) for of_width in moved.values()) for name in recorded},
        },
    )


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


def _metrics_of(
    cases: Mapping[str, Case], other: Case, moved: Mapping[str, int], waits: Mapping[str, int]
) -> dict[str, float]:
    metrics = {
        "data_parallel_advantage": other.median / cases[DIVIDED_BATCH].median,
        "data_parallel_speedup": cases[UNDIVIDED].median / cases[DIVIDED_BATCH].median,
        "micro_batch_speedup": cases[WHOLE].median / cases[CUT].median,
    }
    for name in moved:
        plain = name.replace(" ", "_").replace("-", "_")
        metrics |= {f"{plain}_bytes": float(moved[name]), f"{plain}_waits": float(waits[name])}
    return metrics


EXPERIMENT = Experiment(
    name="partitioning",
    position=6,
    remark="the figure of three ways to divide a network",
    run=run,
    case="data parallelism, width 4",
    metric="data_parallel_advantage",
    metric_means="the fastest other division's time over that of a divided batch: above 1 the divided batch wins",
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
