"""The README's tables, each a function of a machine's folder of results that returns Markdown."""

import errno
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from humanize import metric
from rich.console import Console

from backends.variants import VARIANTS
from benchmarks.experiments.exercises import SHOWN, TRACED, TRACED_ON, WIDTH
from benchmarks.experiments.variants import contrasts
from benchmarks.harness.provenance import provenance, provenance_of_comparison
from benchmarks.harness.targets import Finding
from benchmarks.self_test import COLUMNS, Rates
from parallel_core.comparison.analysis import CellAnalysis, ExperimentAnalysis, analyse
from parallel_core.comparison.storage import read_comparison
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import figure
from parallel_core.system.machine import describe_machine
from parallel_core.terminal.result import show

__all__ = ["TABLES"]

NAMES = {"mxnet": "MXNet", "torch": "PyTorch", "numpy": "NumPy"}
EXERCISES, VARIANTS_FILE = "experiments/exercises.json", "experiments/variants.json"


def first_run(folder: Path) -> str:
    """Show what a person sees of a run, and what the other engine says."""
    written = _read(folder / EXERCISES)
    results = written["runs"][SHOWN]["results"]
    left_out = {"series": {}, "environment": describe_machine()}
    first, other = (Result.from_json({**left_out, **results[side]}) for side in ("mxnet", "torch sync"))
    stream = io.StringIO()
    show(first, Console(file=stream, width=WIDTH, highlight=False, color_system=None))
    lines = [
        f"$ parallel-core run {SHOWN} --backend mxnet",
        *(line.rstrip() for line in stream.getvalue().strip().splitlines()),
        "",
        f"$ parallel-core run {SHOWN} --backend torch --engine sync",
        other.explanation,
    ]
    return "\n".join(["```text", *lines, "```", "", _source(folder, (EXERCISES, written["runs"][SHOWN]))])


def trace(folder: Path) -> str:
    """Show what is printed of a trace: its longest case, and how it agrees with the clock."""
    run = _read(folder / EXERCISES)["runs"][TRACED]
    lines = run["results"][TRACED_ON]["printed"]
    # The table of all cases comes before, and what agrees comes behind.
    first = next((place for place, line in enumerate(lines) if line.startswith("“")), 0)
    last = next((place for place, line in enumerate(lines) if line.startswith("Of the other ")), len(lines))
    return "\n".join(["```text", *lines[first:last], "```", "", _source(folder, (EXERCISES, run))])


def exercises(folder: Path) -> str:
    """Give a row to each exercise: its figure on both frameworks, and the first sentence of what it says."""
    runs = {name: run for name, run in _read(folder / EXERCISES)["runs"].items() if EXPERIMENTS[name].occasion}
    sides = ("mxnet", "torch")
    rows = [
        [f"`{name}`: `{EXPERIMENTS[name].metric}`", *(_said(name, run["results"][side]) for side in sides)]
        for name, run in runs.items()
    ]
    below = _source(folder, *((EXERCISES, run) for run in runs.values()))
    return _table(["", *(NAMES[side] for side in sides)], rows, below)


def _said(experiment: str, result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return f"not measured: {result['failed']}"
    value = result["metrics"].get(EXPERIMENTS[experiment].metric)
    first_sentence = re.split(r"(?<=\.) ", result["explanation"])[0]
    said = f"INVALID: {result['problems'][0]}" if result["problems"] else first_sentence
    return said if value is None else f"{figure(value)}. {said}"


def variants(folder: Path) -> str:
    """Give a row to each variant on CPUs and backend: its figure beside the default's."""
    written = _read(folder / VARIANTS_FILE)
    findings = _findings(written)
    rows = []
    for one in contrasts():
        default, variant = (findings[one.name_of(side)] for side in (one.default, one.variant))
        ratio = findings.get(one.ratio_name)
        names = [f"`{one.variant.name}`", f"`{one.default.name}`", NAMES[one.backend]]
        about = f"`{one.shown.experiment}`, {one.shown.unit or f'`{one.shown.figure}`'}"
        values = [with_bounds(variant.interval), with_bounds(default.interval)]
        rows.append([*names, about, *values, f"{with_bounds(ratio.interval)} ×" if ratio else ""])
    headings = ["variant", "in place of", "framework", "seen in", "with it", "by default", "ratio"]
    on_gpus = [f"`{one.name}`" for one in VARIANTS if not one.default and set(one.found_on.values()) == {("gpu",)}]
    unmeasured = f"Still to be measured, for they are of GPUs: {', '.join(on_gpus)}.\n\n" if on_gpus else ""
    return _table(headings, rows, unmeasured + _source(folder, (VARIANTS_FILE, written)))


def comparison(folder: Path) -> str:
    """Give a row to each cell of a comparison, with its ratio to the first one and the factors of that."""
    read = read_comparison(folder)
    rows = [row for experiment in analyse(read).experiments for row in _rows_of(experiment)]
    headings = ["experiment: case, figure", "cell", "time", "figure", "ratio to the first", "kernels", "scheduling"]
    text = f"[All of it]({folder / 'comparison.json'}): {read.command}, {read.rounds} rounds."
    return _table([*headings, "verdict"], rows, f"{text} {provenance_of_comparison(read)}.")


def _rows_of(experiment: ExperimentAnalysis) -> Iterator[list[str]]:
    described = experiment.experiment
    about = f"`{described.name}`: {described.case}, `{described.metric}`"
    for cell in experiment.cells:
        yield [about, *_row_of(cell)]
        about = ""


def _row_of(cell: CellAnalysis) -> list[str]:
    side = f"{NAMES[cell.cell.backend]} {cell.cell.engine}"
    if cell.time is None:
        return [side, "", "", "", "", "", f"{cell.state}: {cell.reason}"]
    value = "" if cell.metric is None else with_bounds(cell.metric)
    first = [side, metric(cell.time.estimate, "s"), value]
    if cell.ratio is None:
        return [*first, "", "", "", ""]
    factors = (cell.ratio.interval, cell.ratio.kernels, cell.ratio.scheduling)
    return [*first, *("" if factor is None else with_bounds(factor) for factor in factors), cell.ratio.verdict]


def wrong_verdicts(folder: Path) -> str:
    """Give a row to each kind of cells that were compared with themselves, the real ones together."""
    written = _read(folder / "self-test.json")
    compared = [one for one in (Rates(**rate) for rate in written["rates"]) if one.compared]
    shown = [one for one in compared if not one.name.startswith("real")]
    if real := [one for one in compared if one.name.startswith("real")]:
        sums = [sum(counted) if None not in counted else None for counted in zip(*map(_counts, real), strict=True)]
        shown.append(Rates("real, both frameworks and engines", real[0].rounds, *sums))
    rows = [[one.name, str(one.rounds), str(one.compared), *_shares(one)] for one in shown]
    # Files from before there were factors have no such columns.
    columns = COLUMNS if any(one.neither is not None for one in compared) else COLUMNS[:5]
    return _table(columns, [row[: len(columns)] for row in rows], _source(folder, ("self-test.json", written)))


def _counts(rates: Rates) -> tuple[Any, ...]:
    return (rates.compared, rates.false, rates.found, rates.neither, rates.kernels_only, rates.queue_only)


def _shares(rates: Rates) -> Iterator[str]:
    return ("" if n is None else f"{n / rates.compared:.1%}" for n in _counts(rates)[1:])


SIZES_OF_SUMS = ("4 KiB", "1 MB", "10 MB", "100 MB")
TRANSPORTS = ("gloo", "dist_sync")


def processes(folder: Path) -> str:
    """Give a row to each size of a sum between processes: time and share of a stream's speed, by transport."""
    written = _read(folder / "processes.json")
    findings = _findings(written)
    rows = [
        [size, *(cell for transport in TRANSPORTS for cell in _sum_between(findings, size, transport))]
        for size in SIZES_OF_SUMS
    ]
    headings = ["vector", *(heading for one in TRANSPORTS for heading in (one, "of the stream's speed"))]
    return _table(headings, rows, _source(folder, ("processes.json", written)))


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
    written = _read(folder / name)
    return "\n\n".join([*written["notes"], _source(folder, (name, written))])


GPU_ROWS = re.compile("overlap_efficiency|one of many|no longer by launching|two streams|batch 256|products of|the bus")
"""Which findings of a GPU are shown; its page has all."""


def gpu(folder: Path) -> str:
    """Give a row to what bounds a GPU's work: copies beside products, launching, streams, replay, and the bus."""
    path = min(folder.glob("gpu-*.json"), default=None)
    if path is None:
        raise FileNotFoundError(errno.ENOENT, "no file is called so", str(folder / "gpu-*.json"))
    written = _read(path)
    measured = [Finding.from_json(one) for part in written["parts"].values() for one in part["findings"]]
    rows = [
        [one.name.removeprefix("torch: "), _with_unit(one), f"{one.target}: {one.verdict}" if one.target else ""]
        for one in measured
        if GPU_ROWS.search(one.name) and "batch 1024" not in one.name
    ]
    machine = written["machine"]
    versions = f"torch {machine['torch']}, driver {machine['driver']}, commit {machine['commit']}"
    text = f"[{machine['device']}]({path.with_suffix('.md')}): {versions}, {machine['utc'][:10]}."
    return _table(["", "measured", "target"], rows, text)


BENCHMARKS = ("abstraction", "experiments/overlap", "allreduce", "training/speed", "training/growth")
FRAMEWORK = re.compile(r"\b(mxnet|torch)\b( async| sync)?(: |, | )?")


def how_fast(folder: Path) -> str:
    """Give a row to each target of the benchmarks: what it was on both frameworks, and whether it was met."""
    by_file = {f"{name}.json": _read(folder / f"{name}.json") for name in BENCHMARKS}
    rows = [row for name, written in by_file.items() for row in _targets_of(folder / name, written)]
    return _table(["", "target", *(NAMES[one] for one in ("mxnet", "torch"))], rows, _source(folder, *by_file.items()))


def _targets_of(path: Path, written: Mapping[str, Any]) -> Iterator[list[str]]:
    """Make a row of the findings that share a label, of those of which one has a target."""
    labelled: dict[str, list[Finding]] = {}
    for finding in _findings(written).values():
        labelled.setdefault(_label(path.stem, finding), []).append(finding)
    for label, findings in labelled.items():
        targets = {f"{one.target} {one.unit}".strip() for one in findings if one.target}
        if targets:
            linked = f"[{path.stem}]({path.with_suffix('.md')}): {label}"
            yield [
                linked,
                ", ".join(sorted(targets)),
                *(_summary([one for one in findings if name in one.name]) for name in ("mxnet", "torch")),
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


TABLES: Mapping[str, Callable[[Path], str]] = {
    "first-run": first_run,
    "exercises": exercises,
    "trace": trace,
    "variants": variants,
    "comparison": comparison,
    "wrong-verdicts": wrong_verdicts,
    "processes": processes,
    "network": network,
    "how-fast": how_fast,
    "gpu": gpu,
}


def _read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def _findings(written: Mapping[str, Any]) -> dict[str, Finding]:
    return {one["name"]: Finding.from_json(one) for one in written["findings"]}


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], below: str) -> str:
    # A bar within a cell would begin another one.
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", below])


def _source(folder: Path, *measured: tuple[str, Mapping[str, Any]]) -> str:
    """Link the files that hold what was measured, and say on what it was; those measured alike stand together."""
    places: dict[str, dict[str, None]] = {}
    for name, written in measured:
        linked = folder / name
        places.setdefault(provenance(written), {})[f"[{linked.stem}]({linked})"] = None
    return " ".join(f"{', '.join(files)}: {place}." for place, files in places.items())
