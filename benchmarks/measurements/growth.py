"""What grows with the work: the cost of issuing an operation, the speed on more devices than cores,
memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    medians_of,
    refuse_disagreement,
    take_turns,
    worker,
)
from benchmarks.harness.targets import Finding, Target, scaled
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.measurement.differences import ratio_interval
from parallel_core.report.plots.curves import Curve, CurvesChart, Panel
from parallel_core.report.plots.scales import Axis, around, linear
from parallel_core.report.plots.svg import titled
from parallel_core.system.formatting import figure

BACKENDS = ("mxnet", "torch")
DEPTHS = (1, 10, 100, 1000, 10_000, 100_000)
QUICK_DEPTHS = DEPTHS[:4]
DEVICES = (1, 2, 3, 4)
CORES = 2
BATCH = 256
TURNS = 5
WIDTH = 4
COPIES = "× parameters"


@dataclass(frozen=True)
class Values:
    """What each process of a backend gave."""

    costs: Mapping[int, Sequence[float]]
    """Seconds to issue an operation, by the number of operations that are queued."""
    rates: Mapping[int, Sequence[float]]
    """Images a second, by the number of devices."""
    peaks: Mapping[int, Sequence[float]]
    """The peak growth of memory by the number of devices, in copies of the parameters."""


def measure(request: Request) -> Iterator[Report]:
    """Measure dispatch by queue depth, images a second and memory by number of devices."""
    depths = QUICK_DEPTHS if request.quick else DEPTHS
    images = (4 if request.quick else 12) * BATCH
    turns = 1 if request.quick else TURNS
    processes: dict[str, list[Measured]] = {}
    values: dict[str, Values] = {}
    findings: list[Finding] = []
    for backend in BACKENDS:
        queue = worker("queue_depth", backend=backend, depths=depths, operations=100_000)
        training, memory = [], []
        for count in DEVICES:
            amounts = {"backend": backend, "devices": count}
            command = worker("training", batch_size=BATCH, images=images, **amounts)
            training.append(Variant(f"{backend}, {devices(count)}", command))
            # Few images, so that parameters are what counts.
            command = worker("training", width=WIDTH, batch_size=8, images=24, **amounts)
            memory.append(Variant(f"{backend}, memory of {count}", command))
        trained = take_turns(training, request.rounds, turns)
        refuse_disagreement(trained, "loss")
        processes |= trained
        processes |= take_turns(memory, request.rounds, 1)
        processes |= take_turns([Variant(f"{backend}, queue", queue)], request.rounds)
        values[backend] = values_of(backend, processes, depths, images)
        findings += findings_of(backend, values[backend])
    parameters = {"depths": depths, "images": images, "width of the network in memory": WIDTH}
    draw = partial(draw_growth, values)
    yield Report(findings, processes, parameters=parameters, draw=draw)


def devices(count: int) -> str:
    """Write a number of devices."""
    return "1 device" if count == 1 else f"{count} devices"


def values_of(
    backend: str, processes: Mapping[str, Sequence[Measured]], depths: Sequence[int], images: int
) -> Values:
    """Take the values of a backend out of what its processes gave."""
    costs, rates, peaks = {}, {}, {}
    for depth in depths:
        # The fastest repetition: what wakes up beside it now and then doubles the cost of some.
        costs[depth] = [
            min(process.seconds[f"{depth} queued"]) for process in processes[f"{backend}, queue"]
        ]
    for count in DEVICES:
        epochs = medians_of(processes[f"{backend}, {devices(count)}"], "epoch")
        rates[count] = [images / seconds for seconds in epochs]
        peaks[count] = [
            process.figures["peak_bytes"] / process.figures["parameter_bytes"]
            for process in processes[f"{backend}, memory of {count}"]
        ]
    return Values(costs, rates, peaks)


def findings_of(backend: str, values: Values) -> Iterator[Finding]:
    """List the three by depth and devices, the dearest depth over the cheapest, what remains of
    speed past two devices, and what memory each further device adds.
    """
    for depth, seconds in values.costs.items():
        cost = scaled(median_interval(seconds), 1e6)
        name = f"{backend}: issuing an operation when {depth:,} are queued"
        yield Finding(name, cost, "μs")
    costs_by_process = zip(*values.costs.values(), strict=True)
    dearest = median_interval([max(costs) / min(costs) for costs in costs_by_process])
    yield Finding(f"{backend}: dearest depth / cheapest", dearest, "×", Target("at most", 1.3))
    for count, rates in values.rates.items():
        rate = median_interval(rates)
        yield Finding(f"{backend}: training on {devices(count)}", rate, "images/s")
    for count in DEVICES[CORES:]:
        ratio = ratio_interval(values.rates[count], values.rates[CORES])
        name = f"{backend}: {count} devices / {CORES} devices"
        yield Finding(name, ratio, "×", Target("at least", 0.9))
    for count, peaks in values.peaks.items():
        peak = median_interval(peaks)
        yield Finding(f"{backend}: memory of training on {devices(count)}", peak, COPIES)
    peaks_by_process = zip(*values.peaks.values(), strict=True)
    slopes = [slope_of(peaks) for peaks in peaks_by_process]
    name = f"{backend}: memory that each further device adds"
    yield Finding(name, median_interval(slopes), COPIES)


def slope_of(values: Sequence[float]) -> float:
    """Return the slope of a line that is fitted over the numbers of devices."""
    slope, _ = np.polyfit(DEVICES, values, 1)
    return float(slope)


def draw_growth(values: Mapping[str, Values], stream: BinaryIO) -> None:
    """Draw the three as SVG: a panel each, a line for each framework."""
    costs, rates, peaks = [], [], []
    for number, (backend, of_backend) in enumerate(values.items()):
        costs.append(curve(number, backend, of_backend.costs, 1e6))
        rates.append(curve(number, backend, of_backend.rates))
        peaks.append(curve(number, backend, of_backend.peaks))
    depths = [depth for depth, _ in costs[0].points]
    by_depth = Axis("queued operations", around(depths), figure, depths[::2])
    counts = linear(DEVICES)
    on_cores = Axis(f"devices on {CORES} cores", counts, figure, DEVICES)
    by_devices = Axis("devices", counts, figure, DEVICES)
    panels = [
        Panel("", by_depth, from_zero("μs to issue one", costs), costs),
        Panel("", on_cores, from_zero("images/s", rates), rates),
        Panel("", by_devices, from_zero("peak memory / parameters", peaks), peaks),
    ]
    stream.write(titled(CurvesChart(panels, columns=3), "Growth"))


def curve(
    number: int, backend: str, values: Mapping[int, Sequence[float]], factor: float = 1
) -> Curve:
    """Make the curve of a backend, through the medians of its processes in another unit."""
    points = [(x, scaled(median_interval(of_x), factor)) for x, of_x in values.items()]
    return Curve(backend, f"c{number}", points, number)


def from_zero(title: str, curves: Sequence[Curve]) -> Axis:
    """Make an axis from zero on, for the values of curves."""
    values = [0.0]
    for drawn in curves:
        values += [interval.estimate for _, interval in drawn.points]
    return Axis(title, linear(values), figure)


MEASUREMENT = Measurement(
    file="training/growth",
    title="Growth",
    question="What grows with queued operations and devices: issuing, speed, memory?",
    method=Method(1, "2026-11-24", "the fastest repetition of an issue, the median of epochs"),
    measure=measure,
)
