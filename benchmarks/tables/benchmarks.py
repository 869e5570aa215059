"""What the benchmarks found: variants, jobs of processes, two hosts, and the targets."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from backends.registry import names, title
from backends.registry.variants import all_variants, in_words
from benchmarks.harness.results import read_json
from benchmarks.harness.targets import Finding, markdown_table
from benchmarks.measurements.processes import TRANSPORTS
from benchmarks.measurements.variants import contrasts
from benchmarks.tables.sources import source_of
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.system.formatting import figure

FRAMEWORK = re.compile(rf"\b({'|'.join(map(re.escape, names()))})\b( async| sync)?(: |, | )?")
"""A framework in the name of a finding."""
MILLISECONDS = {"ms": 1.0, "μs": 1e-3}
WITH_TARGETS = ("abstraction", "allreduce", "training/speed")


def _read(folder: Path, name: str) -> tuple[list[Finding], str]:
    """Read a benchmark's findings; return also where they come from."""
    document = read_json(folder / f"{name}.json")
    findings = [Finding.from_json(finding) for finding in document["findings"]]
    return findings, source_of(folder, {f"{name}.json": document})


def network(folder: Path) -> str:
    """Show the table that the benchmark of two hosts makes itself."""
    name = "training/network.json"
    document = read_json(folder / name)
    return "\n\n".join([*document["notes"], source_of(folder, {name: document}).strip()])


def variants(folder: Path) -> str:
    """Give a row to each variant on CPUs and backend: its figure beside the default's."""
    all_findings, source = _read(folder, "experiments/variants")
    by_name = {finding.name: finding for finding in all_findings}
    rows = []
    measured = set()
    for contrast in contrasts():
        ratio = f"{contrast.variant} / {contrast.default}"
        if contrast.name_of(contrast.variant) in by_name:
            shown = contrast.shown
            row = [f"`{contrast.variant}`", f"`{contrast.default}`", title(contrast.backend)]
            row.append(f"`{shown.experiment}`, {shown.unit or f'`{shown.figure}`'}")
            sides = (contrast.variant, contrast.default)
            row += [with_bounds(by_name[contrast.name_of(side)].interval) for side in sides]
            of_both = by_name.get(contrast.name_of(ratio))
            row.append(of_both.measured if of_both else "")
            rows.append(row)
            measured.add(contrast.variant)
    headings = ["variant", "in place of", "framework", "seen in", "with it", "by default", "ratio"]
    lines = [markdown_table(headings, rows)]
    missing = [
        f"`{variant.name}` ({', '.join(in_words(variant.name))})"
        for variant in all_variants()
        if not variant.default and variant.name not in measured
    ]
    if missing:
        lines.append(f"\nStill to be measured: {', '.join(missing)}.")
    return "\n".join([*lines, source])


def processes(folder: Path) -> str:
    """Give a row to each size of a sum between processes: time and share of a stream's speed, by
    transport.
    """
    all_findings, source = _read(folder, "processes")
    by_name = {finding.name: finding for finding in all_findings}
    headings = ["vector"]
    for transport in TRANSPORTS.values():
        headings += [transport, "of the stream's speed"]
    rows = []
    for size in ("4 KiB", "1 MB", "10 MB", "100 MB"):
        row = [size]
        for transport in TRANSPORTS.values():
            name = f"{size}: {transport}"
            share = by_name[f"{name}: share of the stream's speed"].interval.estimate
            row += [_in_milliseconds(by_name[name]), f"{share:.0f} %"]
        rows.append(row)
    return "\n".join([markdown_table(headings, rows), source])


def _in_milliseconds(finding: Finding) -> str:
    factor = MILLISECONDS[finding.unit]
    interval = finding.interval
    estimate = figure(factor * interval.estimate)
    return f"{estimate} ms ({figure(factor * interval.low)}–{figure(factor * interval.high)})"


def how_fast(folder: Path) -> str:
    """Give a row to each target of the benchmarks that a framework missed, or may have missed: what
    it was on each. The others are counted.
    """
    documents = {f"{name}.json": read_json(folder / f"{name}.json") for name in WITH_TARGETS}
    by_label: dict[str, dict[str, list[Finding]]] = {}
    for file, document in documents.items():
        for read in document["findings"]:
            finding = Finding.from_json(read)
            framework = FRAMEWORK.search(finding.name)
            if finding.target and framework:
                label = f"{Path(file).stem}: {_label(file, finding.name)}"
                by_framework = by_label.setdefault(label, {})
                by_framework.setdefault(framework[1], []).append(finding)
    missed = {label: row for label, row in by_label.items() if not _is_met(row)}
    frameworks = sorted(set().union(*missed.values()))
    rows = []
    for label, row in missed.items():
        targets = set()
        for finding in chain.from_iterable(row.values()):
            targets.add(f"{finding.target} {finding.unit}".strip())
        cells = [_summary(row.get(framework, [])) for framework in frameworks]
        rows.append([label, ", ".join(sorted(targets)), *cells])
    table = markdown_table(["", "target", *map(title, frameworks)], rows)
    met = f"\n{len(by_label) - len(missed)} other targets were met."
    return "\n".join([table, met, source_of(folder, documents)])


def _label(file: str, name: str) -> str:
    """Return what is measured on each framework, by the name of a finding."""
    if file != "abstraction.json":
        return FRAMEWORK.sub("", name)
    work = "10 000 increments" if "increments" in name else "the other works"
    return f"{work}, our time / that of plain framework code"


def _is_met(row: Mapping[str, Sequence[Finding]]) -> bool:
    findings = chain.from_iterable(row.values())
    return all(finding.verdict == "met" for finding in findings)


def _summary(findings: Sequence[Finding]) -> str:
    """Write the only finding of a framework, or between what several lie, and their verdicts."""
    if not findings:
        return ""
    if len(findings) == 1:
        return f"{findings[0].measured.strip()}, {findings[0].verdict}"
    estimates = [finding.interval.estimate for finding in findings]
    verdicts = Counter(str(finding.verdict) for finding in findings)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    return f"{min(estimates):.2f}–{max(estimates):.2f} {findings[0].unit}: {counted}"
