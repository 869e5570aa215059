"""What two devices of JAX on CPUs do at the same time, through our verbs and in plain JAX, and
which threads copy.

The plain side launches with `jax.jit` and copies with `jax.device_put` to a sharding, on the same
two clients. The processor's time of a copy is divided by threads: the one that calls, and those of
the source and the destination.
"""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    medians_of,
    paired,
    take_turns,
    values_of,
    worker,
)
from benchmarks.harness.targets import Finding, Target, by_round, scaled
from parallel_core.measurement.confidence_intervals import median_interval

TARGET = Target("at most", 1.05)
WORKS: Mapping[str, str] = {
    "one device": "multiplications on one device",
    "two devices": "multiplications on two devices",
    "copies": "copies to the other device",
    "copies beside": "multiplications and copies",
}
SIDES = {"ours": "ours", "plain": "plain JAX"}
AMOUNTS = {"size": 1000, "products": 10, "copies": 20, "repetitions": 5}
QUICK_AMOUNTS = {**AMOUNTS, "size": 256, "repetitions": 2}


def speed_up(one_device: float, two_devices: float) -> float:
    """Return how many times as fast two devices are as one after the other."""
    return 2 * one_device / two_devices


def hidden(run: float, copy: float, together: float) -> float:
    """Return the percentage of the shorter part that is hidden under the longer one."""
    return 100 * (run + copy - together) / min(run, copy)


def measure(request: Request) -> Iterator[Report]:
    """Time multiplications and copies on both sides, in turn in the same processes."""
    amounts = QUICK_AMOUNTS if request.quick else AMOUNTS
    variant = Variant("jax", worker("jax_devices", **amounts))
    processes = take_turns([variant], request.rounds)
    yield Report(findings_of(processes["jax"]), processes, parameters=amounts)


def findings_of(measured: Sequence[Measured]) -> list[Finding]:
    """List the ratios of ours to plain JAX, what each side does at once, and which threads copy."""
    findings = []
    for work, title in WORKS.items():
        ratio = paired(measured, f"{work}, ours", f"{work}, plain")
        findings.append(Finding(f"{title}: ours / plain JAX", ratio, target=TARGET))
    for side, title in SIDES.items():
        run, both, copy, together = (medians_of(measured, f"{work}, {side}") for work in WORKS)
        gained = by_round(speed_up, run, both)
        share = by_round(hidden, run, copy, together)
        findings += [
            Finding(f"{title}: speed-up of two devices over one after the other", gained),
            Finding(f"{title}: copies hidden under multiplications", share, "%"),
        ]
    for thread in ("caller", "source", "destination"):
        share = scaled(median_interval(values_of(measured, f"{thread}_share")), 100)
        findings.append(Finding(f"a copy's processor time: threads of the {thread}", share, "%"))
    return findings


MEASUREMENT = Measurement(
    file="jax-devices",
    title="JAX on two devices",
    question="What do two devices of JAX do at the same time, and which threads copy?",
    method=Method(1, "2026-11-25", "ours and plain JAX in turn, in one process"),
    measure=measure,
    rounds=5,
)
