"""What two devices of JAX on CPUs do at the same time, through our verbs and in plain JAX, and
which threads copy.

    .venv-jax/bin/python -m benchmarks.jax_devices

The plain side launches with `jax.jit` and copies with `jax.device_put` to a sharding, on the same
two clients. The processor's time of a copy is divided by threads: the one that calls, and those of
the source and the destination.
"""

from collections.abc import Mapping

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import Variant, paired, take_turns, worker
from benchmarks.harness.targets import Finding, Target, by_round
from parallel_core.measurement.confidence_intervals import median_interval

TARGET = Target("at most", 1.05)
WORKS: Mapping[str, str] = {
    "one device": "multiplications on one device",
    "two devices": "multiplications on two devices",
    "copies": "copies to the other device",
    "copies beside": "multiplications and copies",
}


def hidden(run: float, copy: float, together: float) -> float:
    """Return the percentage of the shorter part that is hidden under the longer one."""
    return 100 * (run + copy - together) / min(run, copy)


@benchmark("jax-devices", rounds=5)
def main(rounds: int, quick: bool) -> Report:
    """Compare our verbs with plain JAX on two devices, and find which threads copy."""
    amounts = {
        "size": 256 if quick else 1000,
        "products": 10,
        "copies": 20,
        "repetitions": 2 if quick else 5,
    }
    measured = take_turns([Variant("jax", worker("jax_devices", **amounts))], rounds)["jax"]
    findings = [
        Finding(
            f"{name}: ours / plain JAX",
            paired(measured, f"{work}, ours", f"{work}, plain"),
            target=TARGET,
        )
        for work, name in WORKS.items()
    ]
    for side, name in {"ours": "ours", "plain": "plain JAX"}.items():
        run, both, copy, together = (
            [one.median(f"{work}, {side}") for one in measured] for work in WORKS
        )
        gained, share = (
            by_round(lambda one, two: 2 * one / two, run, both),
            by_round(hidden, run, copy, together),
        )
        findings.append(
            Finding(f"{name}: speed-up of two devices over one after the other", gained)
        )
        findings.append(Finding(f"{name}: copies hidden under multiplications", share, "%"))
    for thread in ("caller", "source", "destination"):
        share = median_interval([100 * one.figures[f"{thread}_share"] for one in measured])
        findings.append(Finding(f"a copy's processor time: threads of the {thread}", share, "%"))
    return Report("JAX on two devices", findings, {"jax": measured}, parameters=amounts)


if __name__ == "__main__":
    main()
