"""What each variant on CPUs changes, against the default of its setting, by `parallel-core run
--variant`.

    python -m benchmarks.experiments.variants

Where OPENBLAS_CORETYPE is set, `blas-as-shipped` changes nothing: unset it to see what OpenBLAS
takes by itself.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from operator import truediv
from typing import Any, NamedTuple

from backends.registry import names
from backends.registry.variants import all_variants, found_on
from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import PRODUCT_RATE, Variant, parallel_core, take_turns
from benchmarks.harness.targets import Finding, by_round
from parallel_core.command_line.options import interpreters
from parallel_core.measurement.confidence_intervals import median_interval

TRAINING = ("data-parallel", "images_per_second", "images/s")
SHOWN: Mapping[str, tuple[str, str, str]] = {
    "bulk": TRAINING,
    "temporary space": TRAINING,
    "copy queue": ("overlap", "overlap_efficiency", ""),
    "kernels of products": ("parallel", PRODUCT_RATE, "GFLOP/s"),
}
"""In which experiment a setting shows, by which figure and its unit; other settings are of GPUs."""


class Contrast(NamedTuple):
    """A variant on one backend against the default of its setting, and where it shows."""

    backend: str
    variant: str
    default: str
    setting: str

    def name_of(self, variant: str) -> str:
        """Name one side's figure, or that of both as `VARIANT / DEFAULT`."""
        return f"{self.backend}, {variant}: {SHOWN[self.setting][1]}"


def contrasts() -> Iterator[Contrast]:
    """Iterate over all variants that can be shown on CPUs, with their backends."""
    defaults = {variant.setting: variant.name for variant in all_variants() if variant.default}
    for variant in all_variants():
        if not variant.default and variant.setting in SHOWN:
            for backend, kinds in found_on(variant.name).items():
                if "cpu" in kinds:
                    yield Contrast(
                        backend, variant.name, defaults[variant.setting], variant.setting
                    )


@benchmark("experiments/variants", rounds=3)
@interpreters
def main(rounds: int, quick: bool, interpreters: Iterable[tuple[str, str]]) -> Report:
    """Measure every variant of the frameworks that can be run against the default of its
    setting.
    """
    pythons = {name: sys.executable for name in names() if find_spec(name) is not None} | dict(
        interpreters
    )
    installed = [one for one in contrasts() if one.backend in pythons]
    commands: dict[str, tuple[str, ...]] = {}
    for one in installed:
        experiment, _, _ = SHOWN[one.setting]
        amount: tuple[Any, ...] = ("--rounds", 1) if quick else ()
        if experiment == "data-parallel":
            amount = ("--epochs", 1, "--limit", 4 if quick else 60)
        for variant in (one.default, one.variant):
            options = (
                "--backend",
                one.backend,
                "--device-kind",
                "cpu",
                "--variant",
                variant,
                *amount,
            )
            python = pythons[one.backend]
            commands[one.name_of(variant)] = parallel_core(
                "run", experiment, *options, python=python
            )
    processes = take_turns([Variant(*one) for one in commands.items()], rounds)
    findings = []
    for one in installed:
        _, figure, unit = SHOWN[one.setting]
        sides = [one.name_of(variant) for variant in (one.variant, one.default)]
        values = [[process.figures[figure] for process in processes[side]] for side in sides]
        findings += [
            Finding(side, median_interval(taken), unit)
            for side, taken in zip(sides, values, strict=True)
        ]
        # Efficiencies, which have no unit, may be near zero: their ratio says nothing.
        if unit:
            findings.append(
                Finding(one.name_of(f"{one.variant} / {one.default}"), by_round(truediv, *values))
            )
    return Report("Variants against defaults", findings, processes)


if __name__ == "__main__":
    main()
