"""Whether the frameworks work: each engine was loaded in a process of its own, and multiplied two small matrices."""

import shlex
import sys
from collections.abc import Iterator, Sequence

from backends.installation.gpus import Failure
from backends.installation.known_failures import explain_absence
from backends.installation.probe import DEFAULT_ENGINE, Probe
from parallel_core.doctor.finding import Explanation, Finding, Section
from parallel_core.doctor.fold_frameworks__trying import Attempt
from parallel_core.formatting import listed

__all__ = ["ALONE", "examine_frameworks"]

ALONE = "numpy"
"""The reference: with it alone there is nothing to compare."""


def examine_frameworks(attempts: Sequence[Attempt]) -> Section:
    """Tell of each backend what is installed and which of its engines work; at least one besides NumPy must."""
    findings = [finding for attempt in attempts for finding in _of(attempt)]
    if not any(attempt.usable for attempt in attempts if attempt.name != ALONE):
        cause = "no framework can be used: NumPy is the synchronous reference, and has nothing to schedule"
        advice = Explanation(cause, "pip install 'parallel-core[torch]'")
        findings.append(Finding("frameworks", "broken", "none can be used", advice))
    return Section("Frameworks", tuple(findings))


def _of(attempt: Attempt) -> Iterator[Finding]:
    name = attempt.name
    if not attempt.probes:
        yield Finding(name, "absent", "not installed", explain_absence(name), {"distributions": [], "engines": []})
        return
    figures = {
        "distributions": [f"{one} {version}" for one, version in attempt.distributions],
        "engines": [probe.engine for probe in attempt.usable],
        "version": next((probe.version for probe in attempt.usable), None),
    }
    if attempt.usable:
        yield Finding(name, "fine", _described(attempt), None, figures)
    told: list[Failure] = []
    for probe in attempt.probes:
        failure = probe.failure
        # An import that fails does so with every engine.
        if failure is None or failure in told:
            continue
        told.append(failure)
        label = f"{name}, {probe.engine} engine" if attempt.usable else name
        advice = failure.explanation or _unknown(probe, failure)
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


def _unknown(probe: Probe, failure: Failure) -> Explanation:
    engine = None if probe.engine == DEFAULT_ENGINE else probe.engine
    loaded = f"import backends; backends.load({probe.framework!r}, engine={engine!r})"
    # Where it stands after a minute is said by Python itself.
    shown = f"import faulthandler; faulthandler.dump_traceback_later(60, exit=True); {loaded}"
    return Explanation(
        f"{failure.reason} (its cause is not known here; the command shows all that is said)",
        f"{shlex.quote(sys.executable)} -c {shlex.quote(shown)}",
    )
