"""The check as JSON and as Markdown."""

import re
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.parts import PartResult
from benchmarks.harness.targets import Finding, table_of, tally

VERSIONS = ("torch", "cuda", "cudnn", "numpy", "python", "parallel_core")


def file_name(device: str) -> str:
    """Make a file's name, without suffix, of a GPU's: `gpu-nvidia-h200`."""
    return "gpu-" + re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def as_json(machine: Mapping[str, Any], parts: Mapping[str, PartResult], kind: str, seconds: float) -> dict[str, Any]:
    """Return the object that the file holds."""
    return {
        "schema": 1,
        "benchmark": "gpu_check",
        "rehearsal": kind == "cpu",
        "seconds": round(seconds, 1),
        "machine": dict(machine),
        "parts": {name: part.as_json() for name, part in parts.items()},
    }


def as_markdown(machine: Mapping[str, Any], parts: Mapping[str, PartResult], kind: str, seconds: float) -> str:
    """Write the findings of all parts as one table, and below it what else there is to say of each."""
    device = machine["device"]
    lines = [f"## {device}: what its streams, its bus and its matrix units give", ""]
    if kind == "cpu":
        lines += ["**A rehearsal without a GPU: no figure here means anything.**", ""]
    else:
        memory = machine["device_memory_bytes"] / 2**30
        what = f"{memory:.0f} GiB, compute capability {machine['compute_capability']}"
        lines += [f"{device}, {what}, {machine['multiprocessors']} multiprocessors, driver {machine['driver']}", ""]
    versions = ", ".join(f"{name} {machine[name]}" for name in VERSIONS if name in machine)
    host = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    how = f"medians of rounds, with intervals of 95 %; {machine['utc']}, in {seconds:.0f} s"
    lines += [
        f"{host}, {versions}; {how}",
        "",
        table_of(findings_of(parts)),
        "",
    ]
    for name, part in parts.items():
        remarks = [
            *part.notes,
            *(f"FAILED: {problem}" for problem in part.problems),
            *(f"Not measured: {reason}" for reason in part.skipped),
        ]
        lines += [f"- **{name}**: {text}" for text in remarks]
    return "\n".join(lines).rstrip() + "\n"


def summary(parts: Mapping[str, PartResult]) -> str:
    """Say how many targets were met, and which parts failed or were left out."""
    failed = [name for name, part in parts.items() if part.problems]
    left_out = [name for name, part in parts.items() if part.skipped and not part.findings and not part.notes]
    return "; ".join(
        [
            tally([finding.verdict for finding in findings_of(parts)]),
            *([f"failed: {', '.join(failed)}"] if failed else []),
            *([f"left out: {', '.join(left_out)}"] if left_out else []),
        ]
    )


def findings_of(parts: Mapping[str, PartResult]) -> list[Finding]:
    """List the findings of all parts."""
    return [finding for part in parts.values() for finding in part.findings]
