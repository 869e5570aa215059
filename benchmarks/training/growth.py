"""What grows with the work: the cost of issuing an operation, the speed on more devices than cores, memory.

python -m benchmarks.training.growth
"""

from collections.abc import Sequence
from functools import partial
from typing import BinaryIO

import numpy as np

from benchmarks.harness.findings import Finding, Report, Target, benchmark
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    independent,
    refuse_disagreement,
    scaled,
    take_turns,
    worker,
)
from benchmarks.harness.turn_by_turn import work_in_turns
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.plots.curves import Curve, CurvesChart, Panel
from parallel_core.plots.scales import Axis, around, linear
from parallel_core.plots.svg import titled
from parallel_core.system.formatting import figure

BACKENDS = ("mxnet", "torch")
DEPTHS = (1, 10, 100, 1000, 10_000, 100_000)
DEVICES = (1, 2, 3, 4)
CORES = 2
BATCH = 256
TURNS = 5
WIDTH = 4
Processes = dict[str, list[Measured]]


@benchmark("training/growth", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Measure dispatch by queue depth, images a second and memory by number of devices."""
    depths = DEPTHS[:4] if quick else DEPTHS
    images = (4 if quick else 12) * BATCH
    variants = [one for name in BACKENDS for one in (depth_variant(name, depths), *memory(name))]
    trained: Processes = {}
    for name in BACKENDS:
        trained |= work_in_turns(training(name, images), rounds, turns=1 if quick else TURNS)
    refuse_disagreement(trained, "loss")
    processes = {**take_turns(variants, rounds), **trained}
    findings = [
        finding
        for name in BACKENDS
        for finding in (
            *dispatch_findings(name, processes, depths),
            *speed_findings(name, processes, images),
            *memory_findings(name, processes),
        )
    ]
    draw = partial(draw_growth, processes, depths, images)
    parameters = {"depths": depths, "images": images, "width of the network in memory": WIDTH}
    return Report("Growth", findings, processes, draw=draw, parameters=parameters)


def depth_variant(name: str, depths: Sequence[int]) -> Variant:
    """Make the command that measures dispatch at all depths."""
    return Variant(f"{name}, queue", worker("queue_depth", backend=name, depths=list(depths), operations=100_000))


def training(name: str, images: int) -> list[Variant]:
    """Make the commands that train on 1 to 4 devices."""
    same = {"backend": name, "batch_size": BATCH, "images": images}
    return [Variant(f"{name}, {devices(count)}", worker("training", devices=count, **same)) for count in DEVICES]


def memory(name: str) -> list[Variant]:
    """Make the commands that measure memory on 1 to 4 devices: few images, so that parameters are what counts."""
    same = {"backend": name, "width": WIDTH, "batch_size": 8, "steps": 3}
    return [Variant(f"{name}, memory of {count}", worker("memory", devices=count, **same)) for count in DEVICES]


def dispatch_findings(name: str, processes: Processes, depths: Sequence[int]) -> list[Finding]:
    """List the cost of an operation at each depth, and the dearest over the cheapest."""
    measured = processes[f"{name}, queue"]
    # The fastest repetition: what wakes up beside it now and then doubles the cost of some.
    costs = [[min(one.seconds[f"{depth} queued"]) for depth in depths] for one in measured]
    each = [
        Finding(f"{name}: issuing an operation when {depth:,} are queued", scaled(median_interval(taken), 1e6), "μs")
        for depth, taken in zip(depths, zip(*costs, strict=True), strict=True)
    ]
    worst = median_interval([max(taken) / min(taken) for taken in costs])
    return [
        *each,
        Finding(f"{name}: dearest depth / cheapest", worst, target=Target("at most", 1.3)),
    ]


def devices(count: int) -> str:
    """Write a number of devices."""
    return f"{count} device{'s' if count > 1 else ''}"


def rates(name: str, processes: Processes, images: int) -> dict[int, list[float]]:
    """Return images a second by number of devices, from each process."""
    return {
        count: [images / one.median("epoch") for one in processes[f"{name}, {devices(count)}"]] for count in DEVICES
    }


def speed_findings(name: str, processes: Processes, images: int) -> list[Finding]:
    """List images a second by number of devices, and what remains of them past two."""
    by_count = rates(name, processes, images)
    each = [
        Finding(f"{name}: training on {devices(count)}", median_interval(taken), "images/s")
        for count, taken in by_count.items()
    ]
    past = [
        Finding(
            f"{name}: {count} devices / {CORES} devices",
            independent(by_count[count], by_count[CORES]),
            target=Target("at least", 0.9),
        )
        for count in DEVICES
        if count > CORES
    ]
    return [*each, *past]


def peaks(name: str, processes: Processes) -> dict[int, list[float]]:
    """Return the peak growth of memory by number of devices, in multiples of one copy of the parameters."""
    return {
        count: [
            one.figures["peak_bytes"] / one.figures["parameter_bytes"]
            for one in processes[f"{name}, memory of {count}"]
        ]
        for count in DEVICES
    }


def line(values: Sequence[float]) -> tuple[float, float, float]:
    """Fit a line over the numbers of devices; return slope, value at none, and the largest deviation from it."""
    slope, start = np.polyfit(DEVICES, values, 1)
    return float(slope), float(start), float(np.max(np.abs(np.polyval((slope, start), DEVICES) - values)))


def memory_findings(name: str, processes: Processes) -> list[Finding]:
    """List the peaks of memory and the line through them: what each further device adds."""
    by_count = peaks(name, processes)
    fits = [line(values) for values in zip(*by_count.values(), strict=True)]
    unit = "× parameters"
    slope, start, off = (median_interval(values) for values in zip(*fits, strict=True))
    return [
        *(
            Finding(f"{name}: memory of training on {devices(count)}", median_interval(taken), unit)
            for count, taken in by_count.items()
        ),
        Finding(f"{name}: memory that each further device adds", slope, unit),
        Finding(f"{name}: memory at no device, by that line", start, unit),
        Finding(f"{name}: farthest from that line", off, unit),
    ]


def draw_growth(processes: Processes, depths: Sequence[int], images: int, stream: BinaryIO) -> None:
    """Draw the three as SVG: a panel each, a line for each framework."""
    queued, places = Axis("queued operations", around(depths), figure, depths[::2]), linear(DEVICES)
    on_cores, alone = (Axis(words, places, figure, DEVICES) for words in (f"devices on {CORES} cores", "devices"))
    drawn: dict[str, list[Curve]] = {"μs to issue one": [], "images/s": [], "peak memory / parameters": []}
    for number, name in enumerate(BACKENDS):
        measured = processes[f"{name}, queue"]
        costs = [median_interval([1e6 * min(one.seconds[f"{depth} queued"]) for one in measured]) for depth in depths]
        speeds = [median_interval(taken) for taken in rates(name, processes, images).values()]
        memories = [median_interval(taken) for taken in peaks(name, processes).values()]
        rows = ((depths, costs), (DEVICES, speeds), (DEVICES, memories))
        for curves, (xs, intervals) in zip(drawn.values(), rows, strict=True):
            curves.append(Curve(name, f"c{number}", list(zip(xs, intervals, strict=True)), number))
    panels = [
        Panel(
            "", x, Axis(words, linear([0, *(y.estimate for curve in curves for _, y in curve.points)]), figure), curves
        )
        for x, (words, curves) in zip((queued, on_cores, alone), drawn.items(), strict=True)
    ]
    stream.write(titled(CurvesChart(panels, columns=3), "Growth"))


if __name__ == "__main__":
    main()
