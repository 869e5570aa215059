"""What grows with the work: the cost of issuing an operation, the speed on more devices than cores,
memory.

python -m benchmarks.training.growth
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import BinaryIO

import numpy as np

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
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
DEVICES = (1, 2, 3, 4)
CORES = 2
BATCH = 256
TURNS = 5
WIDTH = 4


@benchmark("training/growth", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Measure dispatch by queue depth, images a second and memory by number of devices."""
    depths = DEPTHS[:4] if quick else DEPTHS
    images = (4 if quick else 12) * BATCH
    processes: dict[str, list[Measured]] = {}
    findings: list[Finding] = []
    values: dict[str, Values] = {}
    for name in BACKENDS:
        queue = worker("queue_depth", backend=name, depths=list(depths), operations=100_000)
        same = {"backend": name, "batch_size": BATCH, "images": images}
        # Few images, so that parameters are what counts.
        few = {"backend": name, "width": WIDTH, "batch_size": 8, "images": 24}
        training = [
            Variant(f"{name}, {devices(n)}", worker("training", devices=n, **same)) for n in DEVICES
        ]
        memory = [
            Variant(f"{name}, memory of {n}", worker("training", devices=n, **few)) for n in DEVICES
        ]
        trained = take_turns(training, rounds, 1 if quick else TURNS)
        refuse_disagreement(trained, "loss")
        queued = take_turns([Variant(f"{name}, queue", queue)], rounds)
        own = trained | take_turns(memory, rounds, 1) | queued
        values[name] = values_of(name, own, depths, images)
        findings += findings_of(name, *values[name])
        processes |= own
    draw = partial(draw_growth, values)
    parameters = {"depths": depths, "images": images, "width of the network in memory": WIDTH}
    return Report("Growth", findings, processes, draw=draw, parameters=parameters)


def devices(count: int) -> str:
    """Write a number of devices."""
    return f"{count} device{'s' if count > 1 else ''}"


Values = tuple[dict[int, list[float]], dict[int, list[float]], dict[int, list[float]]]
"""From each process, seconds to issue an operation by depth, images a second by number of devices,
and the peak growth of memory by number of devices, in multiples of one copy of the parameters.
"""


def values_of(
    name: str, processes: Mapping[str, Sequence[Measured]], depths: Sequence[int], images: int
) -> Values:
    """Take the values of a backend out of what its processes gave."""
    # The fastest repetition: what wakes up beside it now and then doubles the cost of some.
    costs = {
        depth: [min(one.seconds[f"{depth} queued"]) for one in processes[f"{name}, queue"]]
        for depth in depths
    }
    rates = {
        n: [images / one.median("epoch") for one in processes[f"{name}, {devices(n)}"]]
        for n in DEVICES
    }
    peaks = {
        n: [
            one.figures["peak_bytes"] / one.figures["parameter_bytes"]
            for one in processes[f"{name}, memory of {n}"]
        ]
        for n in DEVICES
    }
    return costs, rates, peaks


def findings_of(
    name: str,
    costs: Mapping[int, list[float]],
    rates: Mapping[int, list[float]],
    peaks: Mapping[int, list[float]],
) -> list[Finding]:
    """List the three by depth and devices, the dearest depth over the cheapest, what remains of
    speed past two devices, and the line through the peaks of memory: what each further device adds.
    """
    worst = median_interval(
        [max(taken) / min(taken) for taken in zip(*costs.values(), strict=True)]
    )
    fits = [line(values) for values in zip(*peaks.values(), strict=True)]
    slope, start, off = (median_interval(values) for values in zip(*fits, strict=True))
    unit = "× parameters"
    found = [
        *(
            (
                f"issuing an operation when {depth:,} are queued",
                scaled(median_interval(taken), 1e6),
                "μs",
            )
            for depth, taken in costs.items()
        ),
        ("dearest depth / cheapest", worst, "×", Target("at most", 1.3)),
        *(
            (f"training on {devices(n)}", median_interval(taken), "images/s")
            for n, taken in rates.items()
        ),
        *(
            (
                f"{n} devices / {CORES} devices",
                ratio_interval(rates[n], rates[CORES]),
                "×",
                Target("at least", 0.9),
            )
            for n in DEVICES[CORES:]
        ),
        *(
            (f"memory of training on {devices(n)}", median_interval(taken), unit)
            for n, taken in peaks.items()
        ),
        ("memory that each further device adds", slope, unit),
        ("memory at no device, by that line", start, unit),
        ("farthest from that line", off, unit),
    ]
    return [Finding(f"{name}: {words}", *rest) for words, *rest in found]


def line(values: Sequence[float]) -> tuple[float, float, float]:
    """Fit a line over the numbers of devices; return slope, value at none, and the largest
    deviation from it.
    """
    slope, start = np.polyfit(DEVICES, values, 1)
    return (
        float(slope),
        float(start),
        float(np.max(np.abs(np.polyval((slope, start), DEVICES) - values))),
    )


def draw_growth(values: Mapping[str, Values], stream: BinaryIO) -> None:
    """Draw the three as SVG: a panel each, a line for each framework."""
    drawn: dict[str, list[Curve]] = {
        "μs to issue one": [],
        "images/s": [],
        "peak memory / parameters": [],
    }
    for number, (name, own) in enumerate(values.items()):
        for curves, by_place, factor in zip(drawn.values(), own, (1e6, 1, 1), strict=True):
            points = [
                (place, scaled(median_interval(taken), factor)) for place, taken in by_place.items()
            ]
            curves.append(Curve(name, f"c{number}", points, number))
    depths = [*next(iter(values.values()))[0]]
    places = linear(DEVICES)
    axes = (
        Axis("queued operations", around(depths), figure, depths[::2]),
        *(
            Axis(words, places, figure, DEVICES)
            for words in (f"devices on {CORES} cores", "devices")
        ),
    )
    panels = [
        Panel(
            "",
            x,
            Axis(
                words,
                linear([0, *(y.estimate for curve in curves for _, y in curve.points)]),
                figure,
            ),
            curves,
        )
        for x, (words, curves) in zip(axes, drawn.items(), strict=True)
    ]
    stream.write(titled(CurvesChart(panels, columns=3), "Growth"))


if __name__ == "__main__":
    main()
