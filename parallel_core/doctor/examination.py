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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import backends
from backends.host import processor_flags
from parallel_core.doctor.comparison import examine_comparing
from parallel_core.doctor.data_and_caches import examine_caches, examine_data
from parallel_core.doctor.finding import Diagnosis, Finding, FindingState, Section
from parallel_core.doctor.frameworks import examine_frameworks, try_backend
from parallel_core.doctor.gpus import ask_driver, examine_gpus, examine_transfers
from parallel_core.doctor.host import examine_cores, examine_load, examine_memory
from parallel_core.doctor.kernels import examine_kernels
from parallel_core.doctor.ports import examine_ports
from parallel_core.doctor.python import examine_packages, examine_python, for_this_python
from parallel_core.doctor.settings import examine_settings

__all__ = ["DOCTOR_SCHEMA", "Examination", "examine"]

DOCTOR_SCHEMA = 1
URGENCY: tuple[FindingState, ...] = ("broken", "doubtful", "absent")


@dataclass(frozen=True)
class Examination:
    """All findings, by section."""

    sections: tuple[Section, ...]

    @property
    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """All findings, each with the name of its section."""
        return tuple((section.name, finding) for section in self.sections for finding in section.findings)

    @property
    def broken(self) -> int:
        """The number of things that are broken."""
        return sum(finding.state == "broken" for _, finding in self.findings)

    @property
    def works(self) -> bool:
        """Whether nothing that is installed is broken, and a framework can be used."""
        return not self.broken

    @property
    def problems(self) -> tuple[tuple[str, Finding], ...]:
        """The findings with a diagnosis, each with the name of its section: the worst first, each diagnosis once."""
        problems: dict[Diagnosis, tuple[str, Finding]] = {}
        for state in URGENCY:
            for section, finding in self.findings:
                if finding.state == state and finding.diagnosis is not None:
                    problems.setdefault(finding.diagnosis, (section, finding))
        return tuple(problems.values())

    def as_json(self) -> dict[str, Any]:
        """Return the object that this module describes."""
        return {
            "schema": DOCTOR_SCHEMA,
            "parallel_core": version("parallel-core"),
            "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "works": self.works,
            "sections": [
                {"name": section.name, "findings": [finding.as_json() for finding in section.findings]}
                for section in self.sections
            ],
            "problems": [
                {"section": section, "name": finding.name, "state": finding.state, **finding.cause_and_command}
                for section, finding in self.problems
            ],
        }


def examine(deadline: float) -> Iterator[Section]:
    """Look at one subject after the other; a process that tries a framework may take `deadline` seconds."""
    for section in _sections(deadline):
        findings = (
            replace(finding, diagnosis=finding.diagnosis and for_this_python(finding.diagnosis))
            for finding in section.findings
        )
        yield Section(section.name, tuple(findings))


def _sections(deadline: float) -> Iterator[Section]:
    yield examine_python()
    yield examine_packages()
    attempts = [try_backend(name, deadline) for name in backends.names()]
    yield examine_frameworks(attempts)
    yield examine_kernels(attempts, os.environ, processor_flags())
    gpus = examine_gpus(ask_driver(), attempts, os.environ)
    yield Section("Devices", (examine_cores(), examine_load(), examine_memory(), *gpus))
    yield examine_settings(os.environ, attempts)
    yield examine_transfers(attempts)
    yield examine_data()
    yield examine_caches(os.environ)
    yield examine_ports(os.environ)
    yield examine_comparing(attempts, Path.cwd())
