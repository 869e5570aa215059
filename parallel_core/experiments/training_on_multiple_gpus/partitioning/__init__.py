"""Partitioning: which way of dividing a network over devices is best, and when?

Book: Dive into Deep Learning, "Training on Multiple GPUs", the figure of three ways to divide a
network: network partitioning, layer-wise partitioning and data parallelism.

Prediction: Layers and channels exchange activations, which grow with the batch and with the width;
data parallelism exchanges gradients, which grow with the square of the width and not with the
batch. So data parallelism moves least on a narrow network and most on a wide one, and its devices
meet once a step, while those that divide every layer meet at every layer. Network partitioning
without micro-batches keeps one device busy at a time: it cannot beat one device.

Method: The same step of gradient descent, of a convolution and two dense layers, is taken in five
ways: on one device, with the layers on different devices (the whole batch at once, and cut into
micro-batches), with every layer's channels or units divided, and with the batch divided. The batch
is on the devices before the step begins. Only the number of channels and units changes, from narrow
to wide in doublings. Bytes and waits are read off a recording of the step. That all ways take the
same step is checked in float64, where rounding hardly ever turns a ReLU on or off.

Look at: The curves of `seconds` over the width; `data_parallel_advantage`, the time of the fastest
other division over that of data parallelism on the widest network; the bytes and waits of each
division.

Read: Above 1 data parallelism wins. Layers on different devices, and divided layers, compute a part
of the forward pass again on the way back, as pipelines do to save memory; data parallelism does
not, so equal times would mean that the others use their devices better. An allreduce counts as a
wait for each device that brings a value or fetches the sum. Logical devices on a CPU copy through
memory that they share: bytes are cheap there, and dear between GPUs without a fast link; what is
seen there is mostly what it costs to launch and to wait.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import backends
from parallel_core.experiments.runner.changes import LESS_NOISE, MORE_CORES, larger, with_queue
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.formulas import ratio
from parallel_core.experiments.runner.metrics import answer_by, speed
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.partitioning import network
from parallel_core.experiments.training_on_multiple_gpus.partitioning.layer_wise import LAYER_WISE
from parallel_core.experiments.training_on_multiple_gpus.partitioning.pipeline import (
    network_partitioning,
)
from parallel_core.experiments.training_on_multiple_gpus.step_counts import AT_ONCE
from parallel_core.experiments.training_steps import (
    Batch,
    Parameters,
    Strategy,
    swept,
    time_steps_in_a_row,
)
from parallel_core.experiments.workloads import geometric, record
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.task_graph import Task, crossings, without_loads
from parallel_core.system.errors import RequestError

UNDIVIDED, WHOLE, CUT = (
    "one device",
    "network partitioning",
    "network partitioning in micro-batches",
)
DIVIDED_LAYERS, DIVIDED_BATCH = "layer-wise partitioning", "data parallelism"
STEPS = 3
"""Steps in one timing: several, so that an engine may begin a step while another one still runs."""
CHECKED_STEPS = 2
RATE = 0.01
"""The learning rate for the loss averaged over the rows."""


def strategies(micro_batches: int) -> dict[str, Strategy]:
    """Return the strategies to take a step, by name, in the order of the book's figure."""
    return {
        UNDIVIDED: network.ONE_DEVICE,
        WHOLE: network_partitioning(1),
        CUT: network_partitioning(micro_batches),
        DIVIDED_LAYERS: LAYER_WISE,
        DIVIDED_BATCH: network.DATA_PARALLELISM,
    }


def program(
    trial: Trial,
    narrow: Annotated[int, Parameter("Width of the first network.")] = 1,
    wide: Annotated[int, Parameter("Width up to which it is doubled.")] = 4,
    batch: Annotated[int, Parameter("Images, over all devices.")] = 64,
    micro_batches: Annotated[int, Parameter("Pieces of a batch.")] = 4,
) -> None:
    """Time a step of every strategy, for networks from narrow to wide in doublings.

    A network of width 1 has 8 channels and 32 units. Raises RequestError for a single device, and
    if a device or a micro-batch would have nothing to do.
    """
    trial.refuse_single_device("partitioning", "divides a network")
    check_options(len(trial.devices), narrow, wide, batch, micro_batches)
    ways = strategies(micro_batches)
    divided = [name for name in ways if name != UNDIVIDED]
    rows = network.synthetic_batch(batch)
    checked_rows = network.synthetic_batch(2 * max(len(trial.devices), micro_batches) + 1)
    tasks_by_width: list[dict[str, tuple[Task, ...]]] = []
    widths = geometric(narrow, wide)
    for width in swept(trial, widths, widths):
        initial = network.initial_parameters(width)
        check_steps(trial, ways, initial, checked_rows)
        steps = {
            name: way.in_single_precision(initial, rows, RATE / batch) for name, way in ways.items()
        }
        tasks = {name: without_loads(record(trial.backend, steps[name])) for name in divided}
        tasks_by_width.append(tasks)
        for name, step in steps.items():
            time_steps_in_a_row(trial, f"{name}, width {width}", step, STEPS, curve=name, at=width)
    find_figures(trial, widths[-1], divided, tasks_by_width)


def find_figures(
    trial: Trial,
    widest: int,
    divided: Sequence[str],
    tasks_by_width: Sequence[Mapping[str, Sequence[Task]]],
) -> None:
    """Find the bytes and waits of each division, and how they compare on the widest network."""
    case_of = {name: f"{name}, width {widest}" for name in (UNDIVIDED, *divided)}
    other_cases = [case_of[name] for name in divided if name != DIVIDED_BATCH]
    fastest = min(other_cases, key=lambda case: trial.cases[case].median)
    trial.found_by("data_parallel_advantage", ratio(fastest, case_of[DIVIDED_BATCH]))
    trial.found_by("data_parallel_speedup", ratio(case_of[UNDIVIDED], case_of[DIVIDED_BATCH]))
    trial.found_by("micro_batch_speedup", ratio(case_of[WHOLE], case_of[CUT]))
    series: dict[str, tuple[float, ...]] = {}
    for name in divided:
        metric = name.replace(" ", "_").replace("-", "_")
        tasks_at_widths = [tasks[name] for tasks in tasks_by_width]
        moved_bytes = [sum(task.bytes for task in tasks) for tasks in tasks_at_widths]
        series[f"bytes {name}"] = tuple(map(float, moved_bytes))
        trial.found(f"{metric}_bytes", moved_bytes[-1])
        trial.found(f"{metric}_waits", crossings(tasks_by_width[-1][name]))
    trial.described["series"] = series


def check_options(devices: int, narrow: int, wide: int, batch: int, micro_batches: int) -> None:
    """Raise RequestError if a device or a micro-batch would have nothing to do."""
    channels = network.CHANNELS * narrow
    if devices > channels:
        raise RequestError(
            f"the narrowest network has {channels} channels for {devices} devices: choose a larger "
            "--narrow"
        )
    if narrow > wide:
        raise RequestError(
            f"the narrowest network ({narrow}) must not be wider than the widest ({wide})"
        )
    if batch < max(devices, micro_batches):
        raise RequestError(
            f"a batch of {batch} leaves one of {devices} devices or {micro_batches} micro-batches "
            "without rows: "
            f"choose a larger --batch"
        )


def check_steps(
    trial: Trial, ways: Mapping[str, Strategy], parameters: Parameters, batch: Batch
) -> None:
    """Take steps by each strategy, and compare the changes of the parameters with NumPy's.

    Errors are shares of a parameter's largest change. Parameters and batch keep their dtype.
    """
    numpy = backends.load("numpy", devices=1, threads_per_device=trial.backend.threads_per_device)
    training = (parameters, batch, RATE, CHECKED_STEPS)
    expected = network.ONE_DEVICE.changes(numpy, *training)
    for way in ways.values():
        changes = way.changes(trial.backend, *training)
        trial.check("changes of the parameters", changes, expected)


ADVANTAGE = speed(
    "data_parallel_advantage",
    "Another division was faster than data parallelism on the widest network",
    "Data parallelism was as fast as the fastest other division on the widest network",
    "Data parallelism was faster than every other division on the widest network",
    means="the fastest other division's time over that of a divided batch: above 1 the divided "
    "batch wins",
)

EXPERIMENT = Experiment(
    name="partitioning",
    question="How is a network best divided?",
    position=6,
    remark="the figure of three ways to divide a network",
    program=program,
    case="data parallelism, width 4",
    metrics=(
        ADVANTAGE,
        speed(
            "data_parallel_speedup",
            "One device was faster than data parallelism",
            "Data parallelism was about as fast as one device",
            "Data parallelism was faster than one device",
        ),
        speed(
            "micro_batch_speedup",
            "Cutting the batch into micro-batches cost more than it gave",
            "Cutting the batch into micro-batches changed little",
            "Cutting the batch into micro-batches paid",
        ),
    ),
    answer=answer_by(ADVANTAGE),
    counts=(
        replace(
            AT_ONCE,
            case="data parallelism, width 4",
            counted="steps of data parallelism had computations of two devices at the same time",
        ),
    ),
    changes=(
        with_queue(
            "devices should work at the same time, and a division be faster than one device"
        ),
        LESS_NOISE,
        MORE_CORES,
        larger(
            "wide",
            "A wider network",
            "data parallelism moves more bytes; with a larger --batch the others do",
        ),
    ),
    curves=Curves(
        over="width",
        quantity="seconds",
        x_title="width of the network",
        y_title="seconds a step",
        log_y=True,
        dotted=("one device",),
        caption="A network of width 1 has 8 channels and 32 units. The dotted curve is of one "
        "device.",
    ),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3}},
)
