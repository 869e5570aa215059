"""What each variant on CPUs changes, against the default of its setting, in fresh processes that take turns.

    python -m benchmarks.experiments.variants --python jax=.venv-jax/bin/python

Where OPENBLAS_CORETYPE is set, `blas-as-shipped` changes nothing: unset it to see what OpenBLAS takes by itself.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

from backends.registry import names
from backends.registry.variants import Variant, all_variants, found_on
from benchmarks.harness.findings import Finding, Report, benchmark
from benchmarks.harness.side_by_side import PRODUCT_RATE, Measured, parallel_core, ratio_by_round, take_turns
from benchmarks.harness.side_by_side import Variant as Side
from parallel_core.command_line.options import interpreters
from parallel_core.measurement.confidence_intervals import median_interval

__all__ = ["Contrast", "contrasts", "main"]


@dataclass(frozen=True)
class Shown:
    """In which experiment a setting shows, and by which figure."""

    experiment: str
    figure: str
    unit: str
    options: tuple[str | int, ...] = ()
    quick: tuple[str | int, ...] = ()


TRAINING = Shown(
    "data-parallel", "images_per_second", "images/s", ("--epochs", 1, "--limit", 60), ("--epochs", 1, "--limit", 4)
)
SHOWN: Mapping[str, Shown] = {
    "bulk": TRAINING,
    "temporary space": TRAINING,
    "what is compiled together": replace(TRAINING, options=("--devices", 1, *TRAINING.options)),
    "copy queue": Shown("overlap", "overlap_efficiency", "", quick=("--rounds", 1)),
    "kernels of products": Shown("parallel", PRODUCT_RATE, "GFLOP/s", quick=("--rounds", 1)),
}
"""By setting; other settings are of GPUs."""


@dataclass(frozen=True)
class Contrast:
    """A variant on one backend against the default of its setting."""

    backend: str
    variant: Variant
    default: Variant

    @property
    def shown(self) -> Shown:
        """Where it shows."""
        return SHOWN[self.variant.setting]

    def name_of(self, variant: Variant) -> str:
        """Name one side's figure."""
        return f"{self.backend}, {variant.name}: {self.shown.figure}"

    @property
    def ratio_name(self) -> str:
        """Name the figure of the variant over that of the default."""
        return f"{self.backend}, {self.variant.name} / {self.default.name}: {self.shown.figure}"


def contrasts() -> Iterator[Contrast]:
    """Iterate over all variants that can be shown on CPUs, with their backends."""
    defaults = {variant.setting: variant for variant in all_variants() if variant.default}
    for variant in all_variants():
        if not variant.default and variant.setting in SHOWN:
            for backend, kinds in found_on(variant.name).items():
                if "cpu" in kinds:
                    yield Contrast(backend, variant, defaults[variant.setting])


@benchmark("experiments/variants", rounds=3)
@interpreters
def main(rounds: int, quick: bool, interpreters: Iterable[tuple[str, str]]) -> Report:
    """Measure every variant of the frameworks that can be run against the default of its setting."""
    pythons = {name: sys.executable for name in names() if find_spec(name) is not None}
    pythons |= dict(interpreters)
    installed = [one for one in contrasts() if one.backend in pythons]
    sides = {
        one.name_of(variant): Side(one.name_of(variant), command(one, variant, quick, pythons[one.backend]))
        for one in installed
        for variant in (one.default, one.variant)
    }
    processes = take_turns(list(sides.values()), rounds)
    findings = [finding for one in installed for finding in findings_of(one, processes)]
    return Report("Variants against defaults", findings, processes)


def command(contrast: Contrast, variant: Variant, quick: bool, python: str) -> tuple[str, ...]:
    """Make the command by which a Python runs one side."""
    shown = contrast.shown
    options = shown.quick if quick else shown.options
    return parallel_core(
        "run",
        shown.experiment,
        "--backend",
        contrast.backend,
        "--device-kind",
        "cpu",
        "--variant",
        variant.name,
        *options,
        python=python,
    )


def findings_of(contrast: Contrast, processes: Mapping[str, list[Measured]]) -> list[Finding]:
    """List the figure of both sides, and its ratio where a ratio says something: efficiencies may be near zero."""
    shown = contrast.shown
    names = [contrast.name_of(variant) for variant in (contrast.variant, contrast.default)]
    values = [[one.figures[shown.figure] for one in processes[name]] for name in names]
    both = [Finding(name, median_interval(taken), shown.unit) for name, taken in zip(names, values, strict=True)]
    return [*both, Finding(contrast.ratio_name, ratio_by_round(*values))] if shown.unit else both


if __name__ == "__main__":
    main()
