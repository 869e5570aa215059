"""Look at everything that parallel-core needs, one subject after the other, and sum up.

The object that `doctor --json` writes, which is a public interface:

    {"schema": 1, "parallel_core": "0.1.0", "utc": "2026-01-31T12:00:00+00:00",
     "works": true,                     whether the exit status is 0: nothing is broken, and a framework can be used
     "sections": [
       {"name": "Python", "findings": [
         {"name": "interpreter",
          "state": "fine",              or absent (optional, not here), doubtful, broken
          "text": "CPython 3.11.2: /usr/bin/python3",
          "cause": null,                or one sentence
          "command": null,              or what to paste into a shell
          "figures": {…}}]}],           what it is about, with keys of its own
     "problems": [{"section", "name", "state", "cause", "command"}, …]}

`problems` has the findings that something can be done about, the broken ones first.
"""

import datetime
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from parallel_core.doctor.comparison import examine_comparing
from parallel_core.doctor.data_and_caches import examine_caches, examine_data
from parallel_core.doctor.finding import Finding, FindingState, Section
from parallel_core.doctor.frameworks import examine_frameworks, try_all
from parallel_core.doctor.gpus import ask_driver, examine_gpus, examine_transfers
from parallel_core.doctor.host import examine_cores, examine_memory
from parallel_core.doctor.ports import examine_ports
from parallel_core.doctor.python import examine_packages, examine_python, for_this_python
from parallel_core.doctor.settings import examine_settings

__all__ = ["DOCTOR_SCHEMA", "Examination", "examine"]

DOCTOR_SCHEMA = 1
URGENCY: tuple[FindingState, ...] = ("broken", "doubtful", "absent")


@dataclass(frozen=True)
class Examination:
    """All that was found."""

    sections: tuple[Section, ...]

    @property
    def works(self) -> bool:
        """Whether nothing that is installed is broken, and a framework can be used."""
        return all(finding.state != "broken" for section in self.sections for finding in section.findings)

    @property
    def problems(self) -> tuple[tuple[str, Finding], ...]:
        """What something can be done about, with the name of its section: the same advice once, the worst first."""
        found: dict[tuple[str, str], tuple[str, Finding]] = {}
        for state in URGENCY:
            for section in self.sections:
                for finding in section.findings:
                    if finding.state == state and finding.advice is not None:
                        found.setdefault((finding.advice.cause, finding.advice.command), (section.name, finding))
        return tuple(found.values())

    def as_json(self) -> dict[str, Any]:
        """Return the object that this module describes."""
        return {
            "schema": DOCTOR_SCHEMA,
            "parallel_core": version("parallel-core"),
            "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "works": self.works,
            "sections": [
                {"name": section.name, "findings": [_as_json(finding) for finding in section.findings]}
                for section in self.sections
            ],
            "problems": [
                {"section": section, "name": finding.name, "state": finding.state, **_advice(finding)}
                for section, finding in self.problems
            ],
        }


def examine(deadline: float) -> Iterator[Section]:
    """Look at one subject after the other; a process that tries a framework may take `deadline` seconds."""
    for section in _sections(deadline):
        findings = (
            finding if finding.advice is None else replace(finding, advice=for_this_python(finding.advice))
            for finding in section.findings
        )
        yield Section(section.name, tuple(findings))


def _sections(deadline: float) -> Iterator[Section]:
    yield examine_python()
    yield examine_packages()
    attempts = tuple(try_all(deadline))
    yield examine_frameworks(attempts)
    gpus = examine_gpus(ask_driver(), attempts, os.environ)
    yield Section("Devices", (examine_cores(), examine_memory(), *gpus))
    yield examine_settings(os.environ, attempts)
    yield examine_transfers(attempts)
    yield examine_data()
    yield examine_caches(os.environ)
    yield examine_ports(os.environ)
    yield examine_comparing(attempts, Path.cwd())


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "state": finding.state,
        "text": finding.text,
        **_advice(finding),
        "figures": dict(finding.figures),
    }


def _advice(finding: Finding) -> dict[str, str | None]:
    return {"cause": None, "command": None} if finding.advice is None else asdict(finding.advice)
