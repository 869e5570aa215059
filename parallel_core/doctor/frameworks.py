"""Whether the frameworks work: each engine is loaded in a separate process, and multiplies two small matrices.

What follows from that: with which kernels they compute, and what `parallel-core compare` could measure here.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from backends.installation import frameworks
from backends.installation.frameworks import Diagnosis, diagnose, diagnose_absence, installation_of, is_installed
from backends.installation.kernels import CORE_TYPE, better_core_type
from backends.installation.probe import DEFAULT_ENGINE, Probe
from parallel_core.comparison.environments import CHECKOUT, python_with
from parallel_core.doctor import Finding
from parallel_core.system.formatting import figure, library_in_words, listed
from parallel_core.system.subprocesses import Outcome, supervise

REFERENCE = "numpy"
"""With only the reference there is nothing to compare."""
COMPARED_BACKENDS = ("mxnet", "torch")
"""The backends that `compare` takes by default."""
FAR_BELOW = 0.5
"""A rate below this share of another framework's is far below it."""


@dataclass(frozen=True)
class Attempt:
    """What came of trying a backend: the distributions its framework may come from, and a probe for each engine.

    Without probes its framework is not installed.
    """

    name: str
    distributions: tuple[tuple[str, str], ...]
    probes: tuple[Probe, ...]

    @property
    def usable(self) -> tuple[Probe, ...]:
        """The probes of the engines that work."""
        return tuple(probe for probe in self.probes if probe.failure is None)


def try_backend(name: str, deadline: float) -> Attempt:
    """Try one backend, engine by engine, until one cannot be imported: the import is the same for all.

    No process may take longer than `deadline` seconds.
    """
    declared = installation_of(name)
    if not is_installed(name):
        return Attempt(name, (), ())
    probes: list[Probe] = []
    for engine in declared.engines or (DEFAULT_ENGINE,):
        # -P: the current folder may hold another checkout than the one that is installed.
        command = [sys.executable, "-P", "-m", "backends.installation.probe", name, engine]
        outcome = asyncio.run(supervise(command, deadline, set()))
        probes.append(_read_probe(name, engine, outcome, deadline))
        if not probes[-1].imported or outcome.timed_out:
            break
    installed = {(str(one.name).lower().replace("_", "-"), one.version) for one in distributions()}
    matching = (one for one in installed if re.fullmatch(declared.distributions, one[0]))
    return Attempt(name, tuple(sorted(matching)), tuple(probes))


def _read_probe(name: str, engine: str, outcome: Outcome, deadline: float) -> Probe:
    lines = outcome.output.splitlines()
    if lines and outcome.status == 0:
        try:
            return msgspec.json.decode(lines[-1], type=Probe)
        except msgspec.DecodeError:
            pass
    harmful = installation_of(name).harmful_variables(os.environ).values()
    reason = outcome.reason(deadline)
    if outcome.timed_out or outcome.status < 0:
        reason = f"the process that loaded it {reason}"
    return Probe(name, engine, failure=diagnose(name, outcome.errors) or next(iter(harmful), Diagnosis(reason)))


def examine_frameworks(attempts: Sequence[Attempt]) -> Iterator[Finding]:
    """Report what is installed of each backend and which of its engines work; at least one besides NumPy must."""
    for attempt in attempts:
        yield from _examine_attempt(attempt)
    if not any(attempt.usable for attempt in attempts if attempt.name != REFERENCE):
        cause = "no framework can be used: NumPy is the synchronous reference, and has nothing to schedule"
        diagnosis = Diagnosis(cause, frameworks.install_command("torch"))
        yield Finding("frameworks", "broken", "none can be used", diagnosis)


def _examine_attempt(attempt: Attempt) -> Iterator[Finding]:
    name, usable = attempt.name, attempt.usable
    if not attempt.probes:
        yield Finding(name, "absent", "not installed", diagnose_absence(name), {"distributions": [], "engines": []})
        return
    installed = [f"{distribution} {version}" for distribution, version in attempt.distributions]
    engines = [probe.engine for probe in usable]
    figures = {"distributions": installed, "engines": engines, "version": usable[0].version if usable else None}
    if usable:
        text = usable[0].version
        if name != REFERENCE and installed:
            package = listed([distribution for distribution, _ in attempt.distributions])
            text = f"{text} from {package}, built for {usable[0].gpus.cuda or 'CPUs'}"
        works = "engines work" if len(engines) > 1 else "engine works"
        yield Finding(name, "fine", f"{text}; its {listed(engines)} {works}", None, figures)
    # An import that fails does so with every engine.
    failed = {probe.failure: probe.engine for probe in reversed(attempt.probes) if probe.failure is not None}
    for failure, engine in reversed(failed.items()):
        label = f"{name}, {engine} engine" if usable else name
        text = ", ".join((*installed, "cannot be used"))
        chosen = None if engine == DEFAULT_ENGINE else engine
        diagnosis = failure if failure.command else showing(failure.cause, name, engine=chosen)
        yield Finding(label, "broken", text, diagnosis, {**figures, "said": failure.cause})


def showing(cause: str, framework: str, **named: str | None) -> Diagnosis:
    """Return the diagnosis of a failure whose cause is not known: a command that loads the backend shows it all."""
    # If the import blocks, Python itself prints after a minute where it stands.
    code = (
        "import faulthandler; faulthandler.dump_traceback_later(60, exit=True); "
        f"import backends; backends.load({framework!r}, **{named!r})"
    )
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    return Diagnosis(f"{cause} (its cause is not known here; the command shows the whole message)", command)


def examine_kernels(
    attempts: Sequence[Attempt], environment: Mapping[str, str], processor: Collection[str]
) -> Iterator[Finding]:
    """Report each framework's libraries, how fast it multiplies matrices, and why one is far slower than another.

    `processor` are the processor's flags, as Linux names them.
    """
    probes = {attempt.name: attempt.usable[0] for attempt in attempts if attempt.usable}
    rates = {name: probe.product.gflop_per_s for name, probe in probes.items() if probe.product}
    fastest = max(rates, key=rates.__getitem__, default="")
    for name, rate in rates.items():
        kernels = probes[name].kernels
        libraries = "; ".join(library_in_words(asdict(one)) for one in kernels)
        text = ": ".join(filter(None, (libraries, f"matrix multiplication at {figure(rate)} GFLOP/s on one core")))
        figures = {"kernels": [asdict(one) for one in kernels], "gflop_per_s": rate}
        if rate >= FAR_BELOW * rates[fastest]:
            yield Finding(name, "fine", text, None, figures)
            continue
        cause = (
            f"{fastest} multiplies matrices at {figure(rates[fastest])} GFLOP/s on one core "
            f"(speed-up {figure(rates[fastest] / rate)})"
        )
        taken = next((one.instruction_set for one in kernels if one.library == "OpenBLAS" and one.instruction_set), "")
        if better := better_core_type(taken, frozenset(processor)):
            cause += f": its OpenBLAS computes with the kernels of {taken}, and this processor has AVX2"
            known = Diagnosis(cause, f"export {CORE_TYPE}={better}")
            if CORE_TYPE in environment:
                known = Diagnosis(f"{cause}, but {CORE_TYPE} says so", f"unset {CORE_TYPE}")
        else:
            cause += ", and no setting known here changes that: read how a comparison separates kernels from scheduling"
            known = Diagnosis(cause, "parallel-core compare parallel --quick")
        yield Finding(name, "doubtful", text, known, figures)


def examine_comparing(attempts: Sequence[Attempt], folder: Path, checkout: Path = CHECKOUT) -> Iterator[Finding]:
    """Report which frameworks and engines could be compared, and whether the results can be written to `folder`."""
    usable = {one.name: [probe.engine for probe in one.usable] for one in attempts if one.usable}
    usable.pop(REFERENCE, None)
    engines = {name: own for name, own in usable.items() if name in COMPARED_BACKENDS} or usable
    pythons = {name: python_with(name, checkout) for name in COMPARED_BACKENDS if name not in engines}
    left_out = [name for name, python in pythons.items() if python == sys.executable]
    text = "; ".join(
        [f"{name} ({listed(own)})" for name, own in engines.items()]
        + [f"{name} by {python}" for name, python in pythons.items() if name not in left_out]
    )
    if not engines:
        yield Finding("cells", "absent", "no framework can be used: nothing to compare", None, {"cells": {}})
    elif left_out:
        cause = f"{listed(left_out)} cannot be used here, so a comparison covers only {listed([*engines])}"
        diagnosis = Diagnosis(cause, f"parallel-core compare --backends {','.join(engines)}")
        yield Finding("cells", "absent", f"{text} only", diagnosis, {"cells": engines})
    else:
        yield Finding("cells", "fine", text, None, {"cells": engines})
    if os.access(folder, os.W_OK):
        yield Finding("results", "fine", f"{folder} is writable")
    else:
        cause = f"{folder}, the current folder, cannot be written to, and results are kept there"
        diagnosis = Diagnosis(cause, 'parallel-core compare --out "$HOME/comparison"')
        yield Finding("results", "doubtful", str(folder), diagnosis)
