"""Whether the frameworks work: each engine was loaded in a process of its own, and multiplied two small matrices."""

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

import backends
from backends.installation.gpus import InstallationFailure
from backends.installation.known_failures import diagnose, diagnose_absence, diagnose_environment
from backends.installation.probe import DEFAULT_ENGINE, Probe
from parallel_core.doctor.finding import Diagnosis, Finding, Section
from parallel_core.formatting import listed
from parallel_core.system.subprocesses import Outcome, supervise

__all__ = ["ALONE", "Attempt", "examine_frameworks", "try_all", "try_backend"]


@dataclass(frozen=True)
class Attempt:
    """What became of a backend. `distributions` are those its framework may come from, `probes` one for each engine.

    Without probes its framework is not installed.
    """

    name: str
    distributions: tuple[tuple[str, str], ...]
    probes: tuple[Probe, ...]

    @property
    def usable(self) -> tuple[Probe, ...]:
        """The engines that work."""
        return tuple(probe for probe in self.probes if probe.failure is None)


ALONE = "numpy"
"""The reference: with it alone there is nothing to compare."""


def examine_frameworks(attempts: Sequence[Attempt]) -> Section:
    """Tell of each backend what is installed and which of its engines work; at least one besides NumPy must."""
    findings = [finding for attempt in attempts for finding in _of(attempt)]
    if not any(attempt.usable for attempt in attempts if attempt.name != ALONE):
        cause = "no framework can be used: NumPy is the synchronous reference, and has nothing to schedule"
        advice = Diagnosis(cause, "pip install 'parallel-core[torch]'")
        findings.append(Finding("frameworks", "broken", "none can be used", advice))
    return Section("Frameworks", tuple(findings))


def _of(attempt: Attempt) -> Iterator[Finding]:
    name = attempt.name
    if not attempt.probes:
        yield Finding(name, "absent", "not installed", diagnose_absence(name), {"distributions": [], "engines": []})
        return
    figures = {
        "distributions": [f"{one} {version}" for one, version in attempt.distributions],
        "engines": [probe.engine for probe in attempt.usable],
        "version": next((probe.version for probe in attempt.usable), None),
    }
    if attempt.usable:
        yield Finding(name, "fine", _described(attempt), None, figures)
    told: list[InstallationFailure] = []
    for probe in attempt.probes:
        failure = probe.failure
        # An import that fails does so with every engine.
        if failure is None or failure in told:
            continue
        told.append(failure)
        label = f"{name}, {probe.engine} engine" if attempt.usable else name
        advice = failure.diagnosis or _unknown(probe, failure)
        yield Finding(
            label, "broken", _installed(attempt) + "cannot be used", advice, {**figures, "said": failure.reason}
        )


def _described(attempt: Attempt) -> str:
    names = listed([probe.engine for probe in attempt.usable])
    engines = f"its {names} engine works" if len(attempt.usable) == 1 else f"its {names} engines work"
    found = attempt.usable[0]
    built = f"for {found.gpus.cuda}" if found.gpus.cuda else "for CPUs"
    if not attempt.distributions:
        return f"{found.version}; {engines}"
    package = listed([name for name, _ in attempt.distributions])
    of = "" if attempt.name == ALONE else f" from {package}, built {built}"
    return f"{found.version}{of}; {engines}"


def _installed(attempt: Attempt) -> str:
    return "".join(f"{name} {version}, " for name, version in attempt.distributions)


def _unknown(probe: Probe, failure: InstallationFailure) -> Diagnosis:
    engine = None if probe.engine == DEFAULT_ENGINE else probe.engine
    loaded = f"import backends; backends.load({probe.framework!r}, engine={engine!r})"
    # Where it stands after a minute is said by Python itself.
    shown = f"import faulthandler; faulthandler.dump_traceback_later(60, exit=True); {loaded}"
    return Diagnosis(
        f"{failure.reason} (its cause is not known here; the command shows all that is said)",
        f"{shlex.quote(sys.executable)} -c {shlex.quote(shown)}",
    )


ENGINES = {"mxnet": ("async", "sync"), "torch": ("async", "sync"), "numpy": ("sync",)}


DISTRIBUTIONS = {"mxnet": r"mxnet(-(cu|mkl|native)\w*)?", "torch": "torch", "numpy": "numpy"}
"""The names of the distributions that may hold a framework."""


def try_all(deadline: float) -> Iterator[Attempt]:
    """Try every registered backend; no process may take longer than `deadline` seconds."""
    for name in backends.names():
        yield try_backend(name, deadline)


def try_backend(name: str, deadline: float) -> Attempt:
    """Try one backend; where the import did not end, or failed, it would do so with its other engines too."""
    if name in DISTRIBUTIONS and importlib.util.find_spec(name) is None:
        return Attempt(name, (), ())
    probes: list[Probe] = []
    for engine in ENGINES.get(name, (DEFAULT_ENGINE,)):
        # -P: the current folder may hold another checkout than the one that is installed.
        command = [sys.executable, "-P", "-m", "backends.installation.probe", name, engine]
        outcome = asyncio.run(supervise(command, deadline, set()))
        probes.append(_answer(name, engine, outcome, deadline))
        if outcome.timed_out or not probes[-1].imported:
            break
    return Attempt(name, _distributions(name), tuple(probes))


def _answer(name: str, engine: str, outcome: Outcome, deadline: float) -> Probe:
    lines: Sequence[str] = outcome.output.splitlines()
    if lines and outcome.status == 0:
        try:
            return msgspec.json.decode(lines[-1], type=Probe)
        except msgspec.DecodeError:
            pass
    known = diagnose(name, outcome.errors)
    if known is None:
        known = next(iter(diagnose_environment(name, os.environ)), None)
    reason = outcome.reason(deadline)
    if outcome.timed_out or outcome.status < 0:
        reason = f"the process that loaded it {reason}"
    return Probe(name, engine, failure=InstallationFailure(known.cause if known else reason, known))


def _distributions(name: str) -> tuple[tuple[str, str], ...]:
    pattern = DISTRIBUTIONS.get(name)
    if pattern is None:
        return ()
    found = {(str(one.name).lower().replace("_", "-"), one.version) for one in distributions()}
    return tuple(sorted(one for one in found if re.fullmatch(pattern, one[0])))
