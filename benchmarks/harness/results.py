"""The file of a measurement: JSON, and the same as Markdown beside it."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness.measurement import Method, Report, Request
from benchmarks.harness.side_by_side import Measured
from benchmarks.harness.targets import Finding, table_of
from parallel_core.system.files import write_json, write_whole
from parallel_core.system.machine import describe_machine

RESULTS = Path(__file__).parents[1] / "results"
MAKERS = {"amd", "intel", "genuine", "r", "tm", "cpu", "processor"}
"""What a processor's name says besides its model."""


def results_folder() -> Path:
    """Return the folder of this machine's results: `results/epyc-2-cores`."""
    machine = describe_machine()
    words = re.findall("[a-z0-9]+", machine["processor"].lower())
    model = [word for word in words if word not in MAKERS]
    return RESULTS / "-".join([*model, str(machine["cores"]), "cores"])


def document_of(
    name: str, title: str, method: Method, report: Report, request: Request
) -> dict[str, Any]:
    """Return the JSON of a report."""
    processes = {}
    for variant, measured in report.processes.items():
        processes[variant] = [
            {"seconds": process.seconds, "figures": process.figures, "versions": process.versions}
            for process in measured
        ]
    return {
        "schema": 1,
        "benchmark": name,
        "title": title,
        "method": asdict(method),
        "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        "rounds": request.rounds,
        "quick": request.quick,
        "machine": describe_machine(),
        **sources_of(report.processes),
        "parameters": dict(report.parameters),
        "findings": [finding.as_json() for finding in report.findings],
        "notes": list(report.notes),
        "processes": processes,
        **report.data,
    }


def sources_of(processes: Mapping[str, Sequence[Measured]]) -> dict[str, Any]:
    """Return the versions of all that ran, and by framework all libraries that computed for it in
    any process.
    """
    versions: dict[str, str] = {}
    kernels: dict[str, list[str]] = {}
    for measured in processes.values():
        for process in measured:
            versions |= process.versions
            for framework, libraries in process.kernels.items():
                of_framework = kernels.setdefault(framework, [])
                of_framework += [name for name in libraries if name not in of_framework]
    return {"versions": versions, "kernels": kernels}


def read_json(path: Path) -> dict[str, Any]:
    """Read what a measurement wrote."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write a document as `path`, and what it found as Markdown beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, document)
    if has_page(document):
        write_text(path.with_suffix(".md"), page(document))


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    write_whole(path, lambda stream: stream.write(text.encode()))


def has_page(document: Mapping[str, Any]) -> bool:
    """Return whether a document has what a page shows."""
    return bool(document.get("findings") or document.get("notes"))


def page(document: Mapping[str, Any]) -> str:
    """Write a document as Markdown."""
    lines = [f"## {document['title']}", ""]
    if method := document.get("method"):
        lines += [f"Method {method['number']}, since {method['since']}: {method['meaning']}", ""]
    rounds = document["rounds"]
    lines += [
        f"{provenance(document)}; processes a variant: {rounds}; intervals are of 95 %",
        "",
        table_of([Finding.from_json(finding) for finding in document["findings"]]),
        "",
        *document["notes"],
    ]
    return "\n".join(lines).rstrip() + "\n"


def provenance(document: Mapping[str, Any]) -> str:
    """Say on what a document was measured; older ones do not know some of it."""
    machine, kernels = document["machine"], document.get("kernels", {})
    parts = [
        machine["processor"],
        f"{machine['cores']} cores",
        machine["system"],
        f"Python {machine['python']}",
    ]
    for framework, version in sorted(document.get("versions", {}).items()):
        libraries = "; ".join(kernels.get(framework, ()))
        parts.append(f"{framework} {version}" + (f" ({libraries})" if libraries else ""))
    commit = machine.get("commit")
    parts.append(f"commit {commit}" if commit else "commit not recorded")
    parts.append(day_of(machine))
    if document.get("quick"):
        parts.append("with --quick: a first look")
    return ", ".join(parts)


def day_of(machine: Mapping[str, Any]) -> str:
    """Return the day on which a machine was described: `2026-11-26`."""
    day, _, _ = machine["utc"].partition("T")
    return str(day)
