"""What each variant on CPUs changes, against the default of its setting, by `parallel-core run
--variant`.

Where OPENBLAS_CORETYPE is set, `blas-as-shipped` changes nothing: unset it to see what OpenBLAS
takes by itself.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from operator import truediv
from typing import NamedTuple

from backends.registry import names
from backends.registry.variants import all_variants, found_on
from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    PRODUCT_RATE,
    Measured,
    Variant,
    parallel_core,
    take_turns,
    values_of,
)
from benchmarks.harness.targets import Finding, by_round
from parallel_core.command_line.options import interpreters as python_option
from parallel_core.measurement.confidence_intervals import median_interval


class Shown(NamedTuple):
    """Where a setting shows: the experiment, its figure, and the figure's unit."""

    experiment: str
    figure: str
    unit: str


TRAINING = Shown("data-parallel", "images_per_second", "images/s")
SHOWN: Mapping[str, Shown] = {
    "bulk": TRAINING,
    "temporary space": TRAINING,
    "copy queue": Shown("overlap", "overlap_efficiency", ""),
    "kernels of products": Shown("parallel", PRODUCT_RATE, "GFLOP/s"),
}
"""By setting; those that are missing are of GPUs."""


class Contrast(NamedTuple):
    """A variant on one backend against the default of its setting."""

    backend: str
    variant: str
    default: str
    setting: str

    @property
    def shown(self) -> Shown:
        """Where it shows."""
        return SHOWN[self.setting]

    def name_of(self, variant: str) -> str:
        """Name one side's figure, or that of both as `VARIANT / DEFAULT`."""
        return f"{self.backend}, {variant}: {self.shown.figure}"


def contrasts() -> Iterator[Contrast]:
    """Iterate over all variants that can be shown on CPUs, with their backends."""
    defaults = {variant.setting: variant.name for variant in all_variants() if variant.default}
    for variant in all_variants():
        if not variant.default and variant.setting in SHOWN:
            for backend, kinds in found_on(variant.name).items():
                if "cpu" in kinds:
                    default = defaults[variant.setting]
                    yield Contrast(backend, variant.name, default, variant.setting)


def measure(request: Request, interpreters: Sequence[tuple[str, str]]) -> Iterator[Report]:
    """Run every variant that can be run here, and the default of its setting."""
    pythons = {name: sys.executable for name in names() if find_spec(name) is not None}
    pythons |= dict(interpreters)
    installed = [contrast for contrast in contrasts() if contrast.backend in pythons]
    # Settings that several variants change have one default, which is run once.
    variants: dict[str, Variant] = {}
    for contrast in installed:
        for variant in (contrast.default, contrast.variant):
            name = contrast.name_of(variant)
            options = amount_of(contrast.shown.experiment, request.quick)
            command = parallel_core(
                *("run", contrast.shown.experiment, "--backend", contrast.backend),
                *("--device-kind", "cpu", "--variant", variant, *options),
                python=pythons[contrast.backend],
            )
            variants[name] = Variant(name, command)
    processes = take_turns([*variants.values()], request.rounds)
    findings: list[Finding] = []
    for contrast in installed:
        findings += findings_of(contrast, processes)
    yield Report(findings, processes)


def amount_of(experiment: str, quick: bool) -> tuple[object, ...]:
    """Return the options of how much work a run does."""
    if experiment == TRAINING.experiment:
        return ("--epochs", 1, "--limit", 4 if quick else 60)
    return ("--rounds", 1) if quick else ()


def findings_of(
    contrast: Contrast, processes: Mapping[str, Sequence[Measured]]
) -> Iterator[Finding]:
    """List the figures with a variant and with the default, and their ratio."""
    _, figure, unit = contrast.shown
    values = []
    for side in (contrast.variant, contrast.default):
        name = contrast.name_of(side)
        values.append(values_of(processes[name], figure))
        yield Finding(name, median_interval(values[-1]), unit)
    # Efficiencies, which have no unit, may be near zero: their ratio says nothing.
    if unit:
        name = contrast.name_of(f"{contrast.variant} / {contrast.default}")
        yield Finding(name, by_round(truediv, *values))


MEASUREMENT = Measurement(
    file="experiments/variants",
    title="Variants against defaults",
    question="What does each variant on CPUs change, against the default of its setting?",
    method=Method(1, "2026-11-23", "each side in its own processes, one after the other"),
    measure=measure,
    options=[python_option],
)
