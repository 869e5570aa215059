"""What one GPU gives our experiments, and our copies and multiplications against plain PyTorch's.

    python -m benchmarks.gpu_check
    python -m benchmarks.gpu_check --device cpu --quick    # a rehearsal: figures mean nothing

Every part is `parallel-core run` or a worker in fresh processes under a deadline, so that CUDA code that hangs or
crashes costs one part. Two streams of one GPU are two devices of ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import truediv

import click

from backends.devices import DeviceKind
from backends.registry.variants import found_on
from backends.torch.variants import GRAPH_REPLAY
from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    figures_of,
    median_figure,
    paired,
    parallel_core,
    take_turns,
    worker,
)
from benchmarks.harness.targets import Finding, Target, by_round
from parallel_core.measurement.confidence_intervals import median_interval, ratio_interval

FIGURES: Mapping[str, Sequence[tuple[str, str, Target | None]]] = {
    "overlap": (("overlap_efficiency", "", Target("at least", 0.9)), ("book_overlap_efficiency", "", None)),
    "small operations on two streams": (("small_speedup", "×", None), ("largest_speedup", "×", None)),
}
"""Of experiments: their figures, units and targets."""
BUS = Target("at least", 0.9)
ONE, TWO, REPLAYED = "one stream", "two streams", "replayed"
PLAIN = "copies and multiplications"


@dataclass(frozen=True)
class Amount:
    """How much work there is on a kind of device: options of `parallel-core run`."""

    devices: tuple[str, str]
    """One, and two on the same GPU."""
    size: int
    batches: tuple[int, ...]
    steps: int


AMOUNTS: Mapping[DeviceKind, Amount] = {
    # A multiplication of 2048 then takes about as long as copying it, and all page-locked buffers together 4 GB.
    "gpu": Amount(("gpu:0", "gpu:0/0,gpu:0/1"), 2048, (256, 1024), 40),
    "cpu": Amount(("cpu:1", "cpu:1,cpu:2"), 32, (32,), 2),
}


@benchmark("gpu", rounds=5)
@click.option("--device", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True)
@click.option("--backend", type=click.Choice(["torch", "mxnet"]), default="torch", show_default=True)
def main(rounds: int, quick: bool, device: DeviceKind, backend: str) -> Report:
    """Measure overlap, small operations, training, copies and multiplications on one GPU, or rehearse that on CPUs."""
    processes: dict[str, list[Measured]] = {}
    findings, notes = [], []
    for name, variants in parts(backend, device, 1 if quick else 5).items():
        try:
            measured = take_turns(variants, rounds)
        except click.ClickException as error:
            notes.append(f"Not measured: {name}: {error.message}")
            continue
        findings += [Finding(f"{backend}: {one.name}", one.interval, one.unit, one.target) for one in of(measured)]
        processes |= measured
    title = "A rehearsal without a GPU: no figure here means anything" if device == "cpu" else "One GPU"
    return Report(title, findings, processes, notes, parameters={"device": device})


def parts(backend: str, device: DeviceKind, rounds: int) -> dict[str, list[Variant]]:
    """Return the parts, each of processes that take turns."""
    amount = AMOUNTS[device]
    one, two = amount.devices
    on = partial(parallel_core, "run")
    same = ("--backend", backend, "--devices")
    overlap = on("overlap", *same, one if device == "gpu" else two, "--size", amount.size, "--rounds", rounds)
    sizes = ("--sizes", "8,16") if device == "cpu" else ()
    small = on("small-ops", *same, two, *sizes, "--rounds", rounds)
    found = {name: Variant(name, command) for name, command in zip(FIGURES, (overlap, small), strict=True)}
    ways: dict[str, tuple[str, ...]] = {ONE: (one,), TWO: (two,)}
    if device == "gpu" and device in found_on(GRAPH_REPLAY.name).get(backend, ()):
        ways[REPLAYED] = (one, "--variant", GRAPH_REPLAY.name)
    training = {
        f"training, batch {batch}": [
            Variant(
                f"{way}, batch {batch}",
                on("data-parallel", *same, *where, "--batch-size", batch, "--limit", amount.steps, "--epochs", 2),
            )
            for way, where in ways.items()
        ]
        for batch in amount.batches
    }
    plain = {PLAIN: [Variant(PLAIN, worker("gpu", kind=device, rounds=rounds))]} if backend == "torch" else {}
    return {name: [one] for name, one in found.items()} | training | plain


def of(measured: Mapping[str, Sequence[Measured]]) -> Iterator[Finding]:
    """List the findings of one part; the rates of others are held against its first process's."""
    first, *_ = measured
    for name, unit, target in FIGURES.get(first, ()):
        if interval := median_figure(measured[first], name):
            yield Finding(f"{first}: {name}", interval, unit, target)
    rates = {name: figures_of(own, "images_per_second") for name, own in measured.items()}
    for name, values in rates.items() if all(rates.values()) else ():
        yield Finding(f"training, {name}", median_interval(values), "images/s")
        if name != first:
            yield Finding(f"training, {name} / {first}", ratio_interval(values, rates[first]))
    for what in {case.split(", ")[0]: None for case in measured[first][0].seconds} if first == PLAIN else ():
        unit, work, target = ("GB/s", "gigabytes", BUS) if " to " in what else ("TFLOP/s", "tera_operations", None)
        done = figures_of(measured[first], work)
        for side in ("ours", "plain torch"):
            seconds = [one.median(f"{what}, {side}") for one in measured[first]]
            yield Finding(f"{what}, {side}", by_round(truediv, done, seconds), unit)
        share = paired(measured[first], f"{what}, plain torch", f"{what}, ours")
        yield Finding(f"{what}: our speed / that of plain torch", share, "", target)


if __name__ == "__main__":
    main()
