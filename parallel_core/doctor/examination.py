"""Look at everything that parallel-core needs, one subject after the other, and sum up.

The object that `doctor --json` writes, which is a public interface:

    {"schema": 1, "parallel_core": "0.2.0", "utc": "2026-01-31T12:00:00+00:00",
     "works": true,                     whether the exit status is 0: nothing is broken, and a framework can be used
     "sections": [
       {"name": "Python", "findings": [
         {"name": "interpreter",
          "state": "fine",              or absent (optional, not here), doubtful, broken
          "text": "CPython 3.11.2: /usr/bin/python3",
          "cause": null,                or one sentence
          "command": null,              or what to paste into a shell
          "figures": {…}}]}],           what the finding is about; the keys depend on it
     "problems": [{"section", "name", "state", "cause", "command"}, …]}

`problems` has the findings that something can be done about, the broken ones first.
"""

import datetime
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import backends
from backends.host import processor_flags
from backends.installation.frameworks import Diagnosis
from backends.registry import package_version
from parallel_core.doctor import Finding, frameworks, gpus, host

DOCTOR_SCHEMA = 1


@dataclass(frozen=True)
class Examination:
    """All findings, by section."""

    sections: Mapping[str, tuple[Finding, ...]]

    @property
    def broken(self) -> int:
        """The number of things that are broken; if there is none, a framework can be used."""
        return sum(finding.state == "broken" for findings in self.sections.values() for finding in findings)

    @property
    def problems(self) -> tuple[tuple[str, Finding], ...]:
        """The findings with a diagnosis, each with the name of its section: the worst first, each diagnosis once."""
        problems: dict[Diagnosis, tuple[str, Finding]] = {}
        for state in ("broken", "doubtful", "absent"):
            for section, findings in self.sections.items():
                for finding in findings:
                    if finding.state == state and finding.diagnosis is not None:
                        problems.setdefault(finding.diagnosis, (section, finding))
        return tuple(problems.values())

    def as_json(self) -> dict[str, Any]:
        """Return the object that this module describes."""
        return {
            "schema": DOCTOR_SCHEMA,
            "parallel_core": package_version(),
            "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "works": not self.broken,
            "sections": [
                {"name": name, "findings": [finding.as_json() for finding in findings]}
                for name, findings in self.sections.items()
            ],
            "problems": [
                {"section": section, "name": finding.name, "state": finding.state, **finding.cause_and_command}
                for section, finding in self.problems
            ],
        }


def examine(deadline: float) -> Examination:
    """Look at one subject after the other; a process that tries a framework may take `deadline` seconds."""
    return Examination(
        {
            section: tuple(
                replace(finding, diagnosis=finding.diagnosis and host.for_this_python(finding.diagnosis))
                for finding in findings
            )
            for section, findings in _sections(deadline)
        }
    )


def _sections(deadline: float) -> Iterator[tuple[str, Iterable[Finding]]]:
    attempts = [frameworks.try_backend(name, deadline) for name in backends.names()]
    yield "Python", host.examine_python()
    yield "parallel-core", host.examine_packages()
    yield "Frameworks", frameworks.examine_frameworks(attempts)
    yield "Kernels", frameworks.examine_kernels(attempts, os.environ, processor_flags())
    seen = gpus.examine_gpus(gpus.ask_driver(), attempts, os.environ)
    yield "Devices", (host.examine_cores(), host.examine_load(), host.examine_memory(), *seen)
    yield "Settings", host.examine_settings(os.environ, attempts)
    yield "Transfers", gpus.examine_transfers(attempts)
    yield "Data", (host.examine_data(),)
    yield "Caches", host.examine_caches(os.environ)
    yield "Ports", host.examine_ports()
    yield "compare", frameworks.examine_comparing(attempts, Path.cwd())
