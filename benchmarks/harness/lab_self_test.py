"""How often the band that a run's figure is placed in is wrong: `Metric.place` judges times with synthetic noise.

    python -m benchmarks.harness.lab_self_test --trials 400

Every round drifts, all of its times alike; single times are off by a share and sometimes disturbed by far more. A band
is false if it is none of the true ones, and missed if it is left open though there is one true band. A noise of a tenth
may hide a lot: only false ones count.
"""

from dataclasses import dataclass

import click
import numpy as np

from benchmarks.harness.lab_truths import TRUTHS, Timed, Truth
from parallel_core.measurement.result import Case

__all__ = ["MOST_FALSE", "NOISES", "Counted", "count"]

MOST_FALSE = 0.05


@dataclass(frozen=True)
class Noise:
    """Standard deviations of logarithms, and the share of the times that something else disturbs."""

    single: float
    drift: float
    disturbed: float


NOISES = {"quiet": Noise(0.01, 0.01, 0.01), "usual": Noise(0.03, 0.02, 0.05), "loud": Noise(0.10, 0.05, 0.15)}


@dataclass(frozen=True)
class Counted:
    """How many bands were false, and how many left open what was there to be found."""

    truth: Truth
    trials: int
    false: int
    missed: int


def count(truth: Truth, noise: Noise, rounds: int, trials: int, seed: int = 0) -> Counted:
    """Let a lab judge times with noise, again and again."""
    generator = np.random.default_rng((seed, rounds, sum(map(ord, truth.lab + truth.name))))
    false = missed = 0
    for _ in range(trials):
        code = truth.band_of(timed(truth, noise, rounds, generator))
        false += code is not None and code not in truth.right
        missed += code is None and len(truth.right) == 1
    return Counted(truth, trials, false, missed)


def timed(truth: Truth, noise: Noise, rounds: int, generator: np.random.Generator) -> Timed:
    """Return cases whose rounds take their usual seconds, but for the noise; the last one has the others as parts."""
    *others, last = truth.seconds
    drift = np.cumsum(generator.normal(0, noise.drift, rounds))

    def case(name: str, usual: float) -> Case:
        off = drift + generator.normal(0, noise.single, rounds)
        off += (generator.random(rounds) < noise.disturbed) * generator.uniform(0.05, 0.7, rounds)
        taken = tuple(float(one) for one in usual * np.exp(off))
        parts = tuple(others) if name == last else ()
        return Case(name, taken, tuple(truth.dispatched * one for one in taken), parts=parts)

    return {name: case(name, usual) for name, usual in truth.seconds.items()}


@click.command()
@click.option("--trials", type=click.IntRange(min=1), default=200, show_default=True, help="For each lab and noise.")
def main(trials: int) -> None:
    """Count wrong bands of every lab; exit with status 1 if more than one in twenty is false anywhere."""
    worst = 0.0
    click.echo("| lab | truth | noise | rounds | false | missed |\n| --- | --- | --- | --- | --- | --- |")
    for truth in TRUTHS:
        for (name, noise), rounds in ((one, some) for one in NOISES.items() for some in (3, 5, 10)):
            found = count(truth, noise, rounds, trials)
            worst = max(worst, found.false / trials)
            missed = f"{found.missed / trials:.1%}" if len(truth.right) == 1 else "–"
            row = (truth.lab, truth.name, name, str(rounds), f"{found.false / trials:.1%}", missed)
            click.echo(f"| {' | '.join(row)} |")
    if worst > MOST_FALSE:
        raise click.ClickException(f"{worst:.1%} of the bands of one truth are false")


if __name__ == "__main__":
    main()
