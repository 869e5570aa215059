"""What the benchmarks found: variants, jobs of processes, two hosts, a GPU, and the targets."""

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from backends.registry import names, title
from backends.registry.variants import all_variants, in_words
from benchmarks.experiments.variants import contrasts
from benchmarks.harness.targets import Finding
from benchmarks.tables.markdown import findings_of, read_json, source_of, table
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.system.formatting import figure

__all__ = ["all_findings", "gpu", "how_fast", "network", "processes", "variants"]

VARIANTS_FILE = "experiments/variants.json"
FRAMEWORK = re.compile(rf"\b({'|'.join(map(re.escape, names()))})\b( async| sync)?(: |, | )?")


def variants(folder: Path) -> str:
    """Give a row to each variant on CPUs and backend: its figure beside the default's."""
    written = read_json(folder / VARIANTS_FILE)
    findings = findings_of(written)
    rows = []
    for one in contrasts():
        if one.name_of(one.variant) not in findings:
            continue
        default, variant = (findings[one.name_of(side)] for side in (one.default, one.variant))
        ratio = findings.get(one.ratio_name)
        about_it = [f"`{one.variant.name}`", f"`{one.default.name}`", title(one.backend)]
        about = f"`{one.shown.experiment}`, {one.shown.unit or f'`{one.shown.figure}`'}"
        values = [with_bounds(variant.interval), with_bounds(default.interval)]
        rows.append([*about_it, about, *values, f"{with_bounds(ratio.interval)} ×" if ratio else ""])
    headings = ["variant", "in place of", "framework", "seen in", "with it", "by default", "ratio"]
    shown = {row[0] for row in rows}
    others = [one.name for one in all_variants() if not one.default and f"`{one.name}`" not in shown]
    listed = ", ".join(f"`{name}` ({', '.join(in_words(name))})" for name in others)
    unmeasured = f"Still to be measured: {listed}.\n\n" if others else ""
    return table(headings, rows, unmeasured + source_of(folder, (VARIANTS_FILE, written)))


SIZES_OF_SUMS = ("4 KiB", "1 MB", "10 MB", "100 MB")
TRANSPORTS = ("gloo", "dist_sync")


def processes(folder: Path) -> str:
    """Give a row to each size of a sum between processes: time and share of a stream's speed, by transport."""
    written = read_json(folder / "processes.json")
    findings = findings_of(written)
    rows = [
        [size, *(cell for transport in TRANSPORTS for cell in _sum_between(findings, size, transport))]
        for size in SIZES_OF_SUMS
    ]
    headings = ["vector", *(heading for one in TRANSPORTS for heading in (one, "of the stream's speed"))]
    return table(headings, rows, source_of(folder, ("processes.json", written)))


def _sum_between(findings: Mapping[str, Finding], size: str, transport: str) -> tuple[str, str]:
    taken, share = findings[f"{size}: {transport}"], findings[f"{size}: {transport}: share of the stream's speed"]
    return _milliseconds(taken), f"{share.interval.estimate:.0f} %"


def _with_unit(finding: Finding) -> str:
    return f"{with_bounds(finding.interval)} {finding.unit}".strip()


def _milliseconds(finding: Finding) -> str:
    thousandths = {"ms": 1.0, "μs": 1e-3}[finding.unit]
    interval = finding.interval
    estimate, low, high = (figure(value * thousandths) for value in (interval.estimate, interval.low, interval.high))
    return f"{estimate} ms ({low}–{high})"


def network(folder: Path) -> str:
    """Show the table that the benchmark of two hosts makes itself."""
    name = "training/network.json"
    written = read_json(folder / name)
    return "\n\n".join([*written["notes"], source_of(folder, (name, written))])


def all_findings(folder: Path, name: str) -> str:
    """Give all findings of a benchmark, by its file's name: a column for each framework, if that makes fewer rows."""
    file = f"{name}.json"
    written = read_json(folder / file)
    found = list(findings_of(written).values())
    by_label = _by_label(found, lambda one: FRAMEWORK.sub("", one.name))
    below = source_of(folder, (file, written))
    frameworks = _frameworks(found)
    shared = any(len(_of(name, same)) > 1 for same in by_label.values() for name in frameworks)
    if all(FRAMEWORK.search(one.name) for one in found) and not shared:
        rows = [
            [label, *(", ".join(map(_with_target, _of(name, same))) for name in frameworks)]
            for label, same in by_label.items()
        ]
        return table(["", *map(title, frameworks)], rows, below)
    return table(["", "measured"], [[one.name, _with_target(one)] for one in found], below)


def _frameworks(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Name the frameworks that findings are of."""
    return tuple(sorted({found[1] for one in findings for found in FRAMEWORK.finditer(one.name)}))


def _of(framework: str, findings: Iterable[Finding]) -> list[Finding]:
    return [one for one in findings if framework in one.name]


def _with_target(finding: Finding) -> str:
    return _with_unit(finding) + (f" ({finding.target}: {finding.verdict})" if finding.target else "")


def _by_label(findings: Iterable[Finding], label: Callable[[Finding], str]) -> dict[str, list[Finding]]:
    labelled: dict[str, list[Finding]] = {}
    for finding in findings:
        labelled.setdefault(label(finding), []).append(finding)
    return labelled


GPU_ROWS = re.compile("overlap_efficiency|one of many|no longer by launching|two streams|batch 256|products of|the bus")
"""Which findings of a GPU are shown; its page has all."""


def gpu(folder: Path) -> str:
    """Give a row to what bounds a GPU's work: copies beside products, launching, streams, replay, and the bus."""
    path = min(folder.glob("gpu-*.json"), default=None)
    if path is None:
        raise FileNotFoundError(errno.ENOENT, "no file is called so", str(folder / "gpu-*.json"))
    written = read_json(path)
    measured = [Finding.from_json(one) for part in written["parts"].values() for one in part["findings"]]
    rows = [
        [one.name.removeprefix("torch: "), _with_unit(one), f"{one.target}: {one.verdict}" if one.target else ""]
        for one in measured
        if GPU_ROWS.search(one.name) and "batch 1024" not in one.name
    ]
    machine = written["machine"]
    versions = f"torch {machine['torch']}, driver {machine['driver']}, commit {machine['commit']}"
    text = f"[{machine['device']}]({path}): {versions}, {machine['utc'][:10]}."
    return table(["", "measured", "target"], rows, text)


BENCHMARKS = ("abstraction", "experiments/overlap", "allreduce", "training/speed", "training/growth")


def how_fast(folder: Path) -> str:
    """Give a row to each target of the benchmarks: what it was on each framework, and whether it was met."""
    by_file = {f"{name}.json": read_json(folder / f"{name}.json") for name in BENCHMARKS}
    frameworks = _frameworks(one for written in by_file.values() for one in findings_of(written).values())
    rows = [row for name, written in by_file.items() for row in _targets_of(folder / name, written, frameworks)]
    return table(["", "target", *map(title, frameworks)], rows, source_of(folder, *by_file.items()))


def _targets_of(path: Path, written: Mapping[str, Any], frameworks: Sequence[str]) -> Iterator[list[str]]:
    """Make a row of the findings that share a label, of those of which one has a target."""
    for label, findings in _by_label(findings_of(written).values(), lambda one: _label(path.stem, one)).items():
        targets = {f"{one.target} {one.unit}".strip() for one in findings if one.target}
        if targets:
            linked = f"[{path.stem}]({path.with_suffix('.json')}): {label}"
            yield [
                linked,
                ", ".join(sorted(targets)),
                *(_summary(_of(name, findings)) for name in frameworks),
            ]


def _label(benchmark: str, finding: Finding) -> str:
    if benchmark == "abstraction":
        work = "10 000 increments" if "increments" in finding.name else "the other works"
        return f"{work}, our time / that of plain framework code" if finding.target else finding.name
    return FRAMEWORK.sub("", finding.name)


def _summary(findings: Sequence[Finding]) -> str:
    if len(findings) == 1:
        (one,) = findings
        return ", ".join(filter(None, (_with_unit(one), one.verdict)))
    if not findings:
        return ""
    estimates = [one.interval.estimate for one in findings]
    verdicts = sorted(one.verdict for one in findings if one.verdict)
    counted = ", ".join(f"{len(list(same))} {verdict}" for verdict, same in groupby(verdicts))
    return f"{min(estimates):.2f}–{max(estimates):.2f} {findings[0].unit}: {counted}"
