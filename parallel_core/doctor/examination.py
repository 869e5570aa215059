"""Examine the frameworks and this machine, and sum up the findings.

The object that `doctor --json` writes, which is a public interface:

    {"schema": 1, "parallel_core": "0.2.0", "utc": "2026-01-31T12:00:00+00:00",
     "works": true,                     whether the exit status is 0: nothing is broken
     "sections": [                      Frameworks, Kernels, Devices, Settings, Data
       {"name": "Frameworks", "findings": [
         {"name": "torch",
          "state": "fine",              or absent (optional, not here), doubtful, broken
          "text": "2.13.0; works with queues and without queues",
          "code": null,                 or a Code of backends.installation.frameworks
          "cause": null,                or one sentence
          "command": null,              or what to paste into a shell
          "figures": {…}}]}],           what the finding is about; the keys depend on it
     "problems": [{"section", "name", "state", "code", "cause", "command"}, …]}

`problems` has the findings with a cause: the broken ones first, and each cause once. If no
framework but NumPy works, that is a finding, too, and broken.
"""

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import backends
from backends.host import processor_flags
from backends.installation.frameworks import Diagnosis
from backends.registry import package_version
from parallel_core.doctor import Finding, frameworks, gpus, host
from parallel_core.system.machine import sample_machine, watched

DOCTOR_SCHEMA = 1


@dataclass(frozen=True)
class Examination:
    """All findings, and the frameworks that work."""

    working: tuple[str, ...]
    """The names of the frameworks that work, with remarks."""
    sections: Mapping[str, tuple[Finding, ...]]
    """The findings by section."""

    @property
    def problems(self) -> tuple[tuple[str, Finding], ...]:
        """The (section, finding) of every diagnosis, once each, and the worst first."""
        problems: dict[Diagnosis, tuple[str, Finding]] = {}
        for state in ("broken", "doubtful", "absent"):
            for section, findings in self.sections.items():
                for finding in findings:
                    if finding.state == state and finding.diagnosis is not None:
                        problems.setdefault(finding.diagnosis, (section, finding))
        return tuple(problems.values())

    @property
    def broken(self) -> int:
        """The number of problems that are broken."""
        return sum(finding.state == "broken" for _, finding in self.problems)

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
                {
                    "section": section,
                    "name": finding.name,
                    "state": finding.state,
                    **finding.cause_and_command,
                }
                for section, finding in self.problems
            ],
        }


def examine(deadline: float) -> Examination:
    """Examine everything; a process that tries a framework may take `deadline` seconds."""
    before = sample_machine()
    attempts = [frameworks.try_backend(name, deadline) for name in backends.names()]
    watch = watched(before, sample_machine())
    cards = gpus.ask_driver()
    kernels = frameworks.examine_kernels(
        attempts, os.environ, processor_flags(), watch.is_disturbed
    )
    sections = {
        "Frameworks": frameworks.examine_frameworks(attempts),
        "Kernels": kernels,
        "Devices": (
            host.examine_system(),
            host.examine_load(watch),
            *gpus.examine_gpus(cards, attempts, os.environ),
        ),
        "Settings": host.examine_settings(os.environ),
        "Data": (host.examine_data(),),
    }
    findings = {name: tuple(section) for name, section in sections.items()}
    return Examination(frameworks.working_in_words(attempts), findings)
