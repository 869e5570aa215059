"""What the benchmarks found: variants, jobs of processes, two hosts, and the targets."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from backends.registry import names, title
from backends.registry.variants import all_variants, in_words
from benchmarks.experiments.variants import SHOWN, contrasts
from benchmarks.harness.findings import read_json, source_of
from benchmarks.harness.targets import Finding, markdown_table
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.system.formatting import figure

FRAMEWORK = re.compile(rf"\b({'|'.join(map(re.escape, names()))})\b( async| sync)?(: |, | )?")


def _read(folder: Path, name: str) -> tuple[dict[str, Finding], str]:
    """Read a benchmark's findings by their names; return also where they come from."""
    written = read_json(folder / f"{name}.json")
    found = {one["name"]: Finding.from_json(one) for one in written["findings"]}
    return found, source_of(folder, {f"{name}.json": written})


def variants(folder: Path) -> str:
    """Give a row to each variant on CPUs and backend: its figure beside the default's."""
    findings, source = _read(folder, "experiments/variants")
    rows = []
    for one in contrasts():
        sides = [
            findings.get(one.name_of(side))
            for side in (one.variant, one.default, f"{one.variant} / {one.default}")
        ]
        if sides[0] is not None:
            experiment, metric, unit = SHOWN[one.setting]
            values = ["" if side is None else with_bounds(side.interval) for side in sides]
            values[2] += " ×" if values[2] else ""
            about = f"`{experiment}`, {unit or f'`{metric}`'}"
            rows.append(
                [f"`{one.variant}`", f"`{one.default}`", title(one.backend), about, *values]
            )
    headings = ["variant", "in place of", "framework", "seen in", "with it", "by default", "ratio"]
    shown = {row[0] for row in rows}
    others = [
        one.name for one in all_variants() if not one.default and f"`{one.name}`" not in shown
    ]
    listed = ", ".join(f"`{name}` ({', '.join(in_words(name))})" for name in others)
    unmeasured = [f"\nStill to be measured: {listed}."] if others else []
    return "\n".join([markdown_table(headings, rows), *unmeasured, source])


def processes(folder: Path) -> str:
    """Give a row to each size of a sum between processes: time and share of a stream's speed, by
    transport.
    """
    findings, source = _read(folder, "processes")
    rows, transports = [], ("gloo", "dist_sync")
    for size in ("4 KiB", "1 MB", "10 MB", "100 MB"):
        row = [size]
        for name in (f"{size}: {transport}" for transport in transports):
            taken, share = findings[name], findings[f"{name}: share of the stream's speed"]
            thousandths = {"ms": 1.0, "μs": 1e-3}[taken.unit]
            estimate, low, high = (
                figure(value * thousandths) for value in vars(taken.interval).values()
            )
            row += [f"{estimate} ms ({low}–{high})", f"{share.interval.estimate:.0f} %"]
        rows.append(row)
    headings = [
        "vector",
        *(heading for one in transports for heading in (one, "of the stream's speed")),
    ]
    return "\n".join([markdown_table(headings, rows), source])


def network(folder: Path) -> str:
    """Show the table that the benchmark of two hosts makes itself."""
    name = "training/network.json"
    written = read_json(folder / name)
    return "\n\n".join([*written["notes"], source_of(folder, {name: written}).strip()])


def findings(folder: Path, name: str, *steps: str) -> str:
    """Give the findings of a benchmark, by its file's name: a column for each framework, if that
    makes fewer rows. Of steps, only theirs.
    """
    by_name, source = _read(folder, name)
    if steps:
        by_name = {one: by_name[one] for one in by_name if one.partition(":")[0] in steps}
    grid = _grid(by_name.values(), lambda one: FRAMEWORK.sub("", one.name))
    frameworks = sorted({framework for row in grid.values() for framework in row})
    if "" in frameworks or any(len(cell) > 1 for row in grid.values() for cell in row.values()):
        headings, rows = (
            ["", "measured"],
            [[one.name, _with_target(one)] for one in by_name.values()],
        )
    else:
        headings = ["", *map(title, frameworks)]
        rows = [
            [
                label,
                *(", ".join(map(_with_target, row.get(framework, ()))) for framework in frameworks),
            ]
            for label, row in grid.items()
        ]
    return "\n".join([markdown_table(headings, rows), source])


def _grid(
    found: Iterable[Finding], label: Callable[[Finding], str]
) -> dict[str, dict[str, list[Finding]]]:
    """Group findings by a label and by the framework that they are of, empty for none."""
    grid: dict[str, dict[str, list[Finding]]] = {}
    for one in found:
        framework = FRAMEWORK.search(one.name)
        grid.setdefault(label(one), {}).setdefault(framework[1] if framework else "", []).append(
            one
        )
    return grid


def _with_target(finding: Finding) -> str:
    return finding.measured.strip() + (
        f" ({finding.target}: {finding.verdict})" if finding.target else ""
    )


BENCHMARKS = ("abstraction", "allreduce", "training/speed", "training/growth")


def how_fast(folder: Path) -> str:
    """Give a row to each target of the benchmarks that a framework missed, or may have missed: what
    it was on each. The others are counted.
    """
    by_file: Mapping[str, Any] = {
        f"{name}.json": read_json(folder / f"{name}.json") for name in BENCHMARKS
    }
    grids = {
        folder / name: _grid(map(Finding.from_json, written["findings"]), partial(_label, name))
        for name, written in by_file.items()
    }
    frameworks = sorted(
        {framework for grid in grids.values() for row in grid.values() for framework in row} - {""}
    )
    rows, met = [], 0
    for path, grid in grids.items():
        for label, row in grid.items():
            held = [one for cell in row.values() for one in cell if one.target]
            if all(one.verdict == "met" for one in held):
                met += bool(held)
                continue
            targets = {f"{one.target} {one.unit}".strip() for one in held}
            summaries = (_summary(row.get(framework, ())) for framework in frameworks)
            rows.append([f"{path.stem}: {label}", ", ".join(sorted(targets)), *summaries])
    table = markdown_table(["", "target", *map(title, frameworks)], rows)
    others = f"\n{met} other targets were met."
    return "\n".join([table, others, source_of(folder, by_file)])


def _label(file: str, finding: Finding) -> str:
    if file == "abstraction.json":
        work = "10 000 increments" if "increments" in finding.name else "the other works"
        return (
            f"{work}, our time / that of plain framework code" if finding.target else finding.name
        )
    return FRAMEWORK.sub("", finding.name)


def _summary(findings: Sequence[Finding]) -> str:
    if len(findings) == 1:
        return ", ".join(filter(None, (findings[0].measured.strip(), findings[0].verdict)))
    if not findings:
        return ""
    estimates = [one.interval.estimate for one in findings]
    verdicts = Counter(one.verdict for one in findings if one.verdict)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    return f"{min(estimates):.2f}–{max(estimates):.2f} {findings[0].unit}: {counted}"
