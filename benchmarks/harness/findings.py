"""The findings of a benchmark: figures with intervals, the targets they are held against, a table
and a JSON file.
"""

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO

import click

from benchmarks.harness.side_by_side import Measured
from benchmarks.harness.targets import Finding, table_of, tally
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.system.files import write_json, write_whole
from parallel_core.system.machine import describe_machine

RESULTS = Path(__file__).parents[1] / "results"
MAKERS = {"amd", "intel", "genuine", "r", "tm", "cpu", "processor"}
"""What a processor's name says besides its model."""


@dataclass(frozen=True)
class Report:
    """All findings of a benchmark. `notes` are sentences made from the numbers; `draw` writes an
    SVG.
    """

    title: str
    findings: Sequence[Finding]
    processes: Mapping[str, Sequence[Measured]]
    notes: Sequence[str] = ()
    draw: Callable[[BinaryIO], object] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


def results_folder() -> Path:
    """Return the folder of this machine's results: `results/epyc-2-cores`."""
    machine = describe_machine()
    words = [
        word for word in re.findall("[a-z0-9]+", machine["processor"].lower()) if word not in MAKERS
    ]
    return RESULTS / "-".join([*words, str(machine["cores"]), "cores"])


def provenance(written: Mapping[str, Any]) -> str:
    """Write what the JSON of measurements says of where it comes from; older files say nothing of
    some of it.
    """
    machine, kernels = written["machine"], written.get("kernels", {})
    frameworks = [
        f"{name} {version}" + (f" ({'; '.join(kernels[name])})" if kernels.get(name) else "")
        for name, version in sorted(written.get("versions", {}).items())
    ]
    commit = machine.get("commit")
    return ", ".join(
        [
            machine["processor"],
            f"{machine['cores']} cores",
            machine["system"],
            f"Python {machine['python']}",
            *frameworks,
            f"commit {commit}" if commit else "commit not recorded",
            machine["utc"].partition("T")[0],
            *(["with --quick: a first look"] if written.get("quick") else []),
        ]
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read what a benchmark wrote."""
    written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return written


def source_of(folder: Path, measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Link the files that hold what was measured, and say on what machine, and when.

    The files say more: versions, kernels and the commit.
    """
    places: dict[str, list[str]] = {}
    for name, written in measured.items():
        linked = folder / name
        places.setdefault(measured_on(written), []).append(f"[{linked.stem}]({linked})")
    return "\n" + " ".join(
        f"Measured on {place}: {', '.join(files)}." for place, files in places.items()
    )


def measured_on(written: Mapping[str, Any]) -> str:
    """Name the machine and the day of measurements: `AMD EPYC, 2 cores, 2026-11-26`."""
    machine = written["machine"]
    return f"{machine['processor']}, {machine['cores']} cores, {machine['utc'].partition('T')[0]}"


def page(written: Mapping[str, Any]) -> str:
    """Write what a benchmark's JSON holds as Markdown."""
    lines = [
        f"## {written['title']}",
        "",
        f"{provenance(written)}; processes a variant: {written['rounds']}; intervals are of 95 %",
        "",
        table_of([Finding.from_json(one) for one in written["findings"]]),
        "",
        *written["notes"],
    ]
    return "\n".join(lines).rstrip() + "\n"


def benchmark(name: str, rounds: int) -> Callable[[Callable[..., Report]], click.Command]:
    """Make a command of a function (rounds, quick) -> report, with the options that all benchmarks
    share, and its own.

    A target that is missed is a finding; a wrong result ends with status 1.
    """

    def decorate(measure: Callable[..., Report]) -> click.Command:
        @click.command(Path(name).name, help=measure.__doc__)
        @click.option(
            "--out",
            type=click.Path(path_type=Path, file_okay=False),
            default=results_folder,
            help="Folder for NAME.json and NAME.md. Default: this machine's, in results beside the "
            "scripts.",
        )
        @click.option(
            "--rounds",
            type=click.IntRange(min=FEWEST_FOR_A_VERDICT),
            default=rounds,
            show_default=True,
            help="Processes a variant.",
        )
        @click.option("--quick", is_flag=True, help="Less work, in one round: to see that it runs.")
        @wraps(measure)
        def command(out: Path, rounds: int, quick: bool, **own: Any) -> None:
            rounds = 1 if quick else rounds
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write(measure(rounds, quick, **own), path, rounds, quick)

        return command

    return decorate


def write(report: Report, path: Path, rounds: int, quick: bool) -> None:
    """Write the report beside `path`, with the suffixes .json, .md and .svg, and print the
    table.
    """
    everything = {
        "schema": 1,
        "benchmark": path.name,
        "title": report.title,
        "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        "rounds": rounds,
        "quick": quick,
        "machine": describe_machine(),
        **sources_of([one for measured in report.processes.values() for one in measured]),
        "parameters": dict(report.parameters),
        "findings": [finding.as_json() for finding in report.findings],
        "notes": list(report.notes),
        "processes": {
            name: [
                {part: getattr(one, part) for part in ("seconds", "figures", "versions")}
                for one in measured
            ]
            for name, measured in report.processes.items()
        },
    }
    text = page(everything)
    write_json(path.with_suffix(".json"), everything)
    write_text(path.with_suffix(".md"), text)
    if report.draw is not None:
        write_whole(path.with_suffix(".svg"), report.draw)
    click.echo(text)
    click.echo(tally([finding.verdict for finding in report.findings]))


def sources_of(processes: Sequence[Measured]) -> dict[str, Any]:
    """Return the versions of all that ran, and by framework all libraries that computed for it in
    any process.
    """
    kernels: dict[str, dict[str, None]] = {}
    for one in processes:
        for name, some in one.kernels.items():
            kernels.setdefault(name, {}).update(dict.fromkeys(some))
    versions = {name: version for one in processes for name, version in one.versions.items()}
    return {"versions": versions, "kernels": {name: list(some) for name, some in kernels.items()}}


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    write_whole(path, lambda stream: stream.write(text.encode()))
