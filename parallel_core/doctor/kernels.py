"""With which kernels each framework computes on one core, and whether that is far slower than another one does."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from backends.installation.kernels import CORE_TYPE, better_core_type
from backends.installation.probe import Probe
from parallel_core.doctor.finding import Diagnosis, Finding, Section
from parallel_core.doctor.frameworks import Attempt
from parallel_core.system.formatting import figure, library_in_words

__all__ = ["examine_kernels"]

FAR_BELOW = 0.5
"""A rate below this share of another framework's is far below it."""


def examine_kernels(attempts: Sequence[Attempt], environment: Mapping[str, str], processor: Collection[str]) -> Section:
    """Report each framework's libraries and the rate of its products, and why one that is far slower than another is.

    `processor` are the processor's flags, as Linux names them.
    """
    probes = {attempt.name: attempt.usable[0] for attempt in attempts if attempt.usable}
    rates = {name: probe.product.gflop_per_s for name, probe in probes.items() if probe.product}
    return Section("Kernels", tuple(_examine(probes[name], rates, environment, frozenset(processor)) for name in rates))


def _examine(
    probe: Probe, rates: Mapping[str, float], environment: Mapping[str, str], processor: frozenset[str]
) -> Finding:
    name, rate = probe.framework, rates[probe.framework]
    libraries = "; ".join(library_in_words(asdict(one)) for one in probe.kernels)
    text = ": ".join(filter(None, (libraries, f"products at {figure(rate)} GFLOP/s on one core")))
    figures = {"kernels": [asdict(one) for one in probe.kernels], "gflop_per_s": rate}
    fastest = max(rates, key=rates.__getitem__)
    if rate >= FAR_BELOW * rates[fastest]:
        return Finding(name, "fine", text, None, figures)
    far_below = (
        f"{fastest} multiplies matrices {figure(rates[fastest] / rate)} × as fast ({figure(rates[fastest])} GFLOP/s on "
        "one core)"
    )
    return Finding(name, "doubtful", text, _diagnose(probe, far_below, environment, processor), figures)


def _diagnose(probe: Probe, far_below: str, environment: Mapping[str, str], processor: frozenset[str]) -> Diagnosis:
    openblas = [one for one in probe.kernels if one.library == "OpenBLAS" and one.instruction_set]
    better = better_core_type(openblas[0].instruction_set or "", processor) if openblas else None
    if better is None:
        cause = (
            f"{far_below}, and no setting known here changes that: read how a comparison tells kernels from scheduling"
        )
        return Diagnosis(cause, "parallel-core compare parallel --quick")
    taken = f"its OpenBLAS computes with the kernels of {openblas[0].instruction_set}, and this processor has AVX2"
    if CORE_TYPE in environment:
        return Diagnosis(f"{far_below}: {taken}, but {CORE_TYPE} says so", f"unset {CORE_TYPE}")
    return Diagnosis(f"{far_below}: {taken}", f"export {CORE_TYPE}={better}")
