"""Whether the frameworks work: each engine is loaded in a process of its own, and multiplies two small matrices."""

import asyncio
import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions

import msgspec

from backends.installation.frameworks import diagnose, diagnose_absence, diagnose_environment, installation_of
from backends.installation.gpus import InstallationFailure
from backends.installation.probe import DEFAULT_ENGINE, Probe
from parallel_core.doctor.finding import Diagnosis, Finding, Section
from parallel_core.system.formatting import listed
from parallel_core.system.subprocesses import Outcome, supervise

__all__ = ["Attempt", "examine_frameworks", "try_backend"]

REFERENCE = "numpy"
"""With the reference alone there is nothing to compare."""


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
    if declared.module and importlib.util.find_spec(declared.module) is None:
        return Attempt(name, (), ())
    probes: list[Probe] = []
    for engine in declared.engines or (DEFAULT_ENGINE,):
        # -P: the current folder may hold another checkout than the one that is installed.
        command = [sys.executable, "-P", "-m", "backends.installation.probe", name, engine]
        outcome = asyncio.run(supervise(command, deadline, set()))
        probes.append(_read_probe(name, engine, outcome, deadline))
        if outcome.timed_out or not probes[-1].imported:
            break
    return Attempt(name, _distributions(declared.distributions), tuple(probes))


def _read_probe(name: str, engine: str, outcome: Outcome, deadline: float) -> Probe:
    lines = outcome.output.splitlines()
    if lines and outcome.status == 0:
        try:
            return msgspec.json.decode(lines[-1], type=Probe)
        except msgspec.DecodeError:
            pass
    known = diagnose(name, outcome.errors) or next(iter(diagnose_environment(name, os.environ).values()), None)
    reason = outcome.reason(deadline)
    if outcome.timed_out or outcome.status < 0:
        reason = f"the process that loaded it {reason}"
    return Probe(name, engine, failure=InstallationFailure(known.cause if known else reason, known))


def _distributions(pattern: str) -> tuple[tuple[str, str], ...]:
    installed = {(str(one.name).lower().replace("_", "-"), one.version) for one in distributions()}
    return tuple(sorted(one for one in installed if re.fullmatch(pattern, one[0])))


def examine_frameworks(attempts: Sequence[Attempt]) -> Section:
    """Report what is installed of each backend and which of its engines work; at least one besides NumPy must."""
    findings = [finding for attempt in attempts for finding in _examine_attempt(attempt)]
    if not any(attempt.usable for attempt in attempts if attempt.name != REFERENCE):
        cause = "no framework can be used: NumPy is the synchronous reference, and has nothing to schedule"
        diagnosis = Diagnosis(cause, "pip install 'parallel-core[torch]'")
        findings.append(Finding("frameworks", "broken", "none can be used", diagnosis))
    return Section("Frameworks", tuple(findings))


def _examine_attempt(attempt: Attempt) -> Iterator[Finding]:
    name, usable = attempt.name, attempt.usable
    if not attempt.probes:
        yield Finding(name, "absent", "not installed", diagnose_absence(name), {"distributions": [], "engines": []})
        return
    installed = [f"{distribution} {version}" for distribution, version in attempt.distributions]
    figures = {
        "distributions": installed,
        "engines": [probe.engine for probe in usable],
        "version": next((probe.version for probe in usable), None),
    }
    if usable:
        yield Finding(name, "fine", _describe(attempt), None, figures)
    failed: dict[InstallationFailure, Probe] = {}
    for probe in attempt.probes:
        if probe.failure is not None:
            # An import that fails does so with every engine.
            failed.setdefault(probe.failure, probe)
    for failure, probe in failed.items():
        label = f"{name}, {probe.engine} engine" if usable else name
        text = ", ".join((*installed, "cannot be used"))
        diagnosis = failure.diagnosis or _show_failure(probe, failure)
        yield Finding(label, "broken", text, diagnosis, {**figures, "said": failure.reason})


def _describe(attempt: Attempt) -> str:
    first, *others = attempt.usable
    engines = listed([probe.engine for probe in attempt.usable])
    works = f"its {engines} {'engines work' if others else 'engine works'}"
    if attempt.name == REFERENCE or not attempt.distributions:
        return f"{first.version}; {works}"
    package = listed([name for name, _ in attempt.distributions])
    return f"{first.version} from {package}, built for {first.gpus.cuda or 'CPUs'}; {works}"


def _show_failure(probe: Probe, failure: InstallationFailure) -> Diagnosis:
    engine = None if probe.engine == DEFAULT_ENGINE else probe.engine
    # If the import blocks, Python itself prints after a minute where it stands.
    code = (
        "import faulthandler; faulthandler.dump_traceback_later(60, exit=True); "
        f"import backends; backends.load({probe.framework!r}, engine={engine!r})"
    )
    return Diagnosis(
        f"{failure.reason} (its cause is not known here; the command shows the whole message)",
        f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}",
    )
