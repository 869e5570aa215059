"""Run a measurement by its name: `python -m benchmarks speed`."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import click

from benchmarks.declared import MEASUREMENTS, OF_BENCH
from benchmarks.harness.measurement import Measurement, Request
from benchmarks.harness.results import document_of, has_page, page, read_json, results_folder, write
from benchmarks.harness.targets import Finding, table_of, tally
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.system.formatting import listed

REHEARSALS = Path("runs/rehearsal")
FOLDER = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the JSON. Default: this machine's, in benchmarks/results; that of a rehearsal "
    "is runs/rehearsal.",
)
QUICK = click.option("--quick", is_flag=True, help="Next to no work, once: to see that it runs.")


@click.group(help=__doc__)
def main() -> None:
    pass


def command_of(measurement: Measurement) -> click.Command:
    """Make the command of a measurement, with the options of all and its own.

    A target that is missed is a finding; a wrong result ends with status 1.
    """
    options: list[Callable[..., Any]] = [FOLDER, QUICK, *measurement.options]
    if measurement.rounds > 1:
        least = click.IntRange(min=FEWEST_FOR_A_VERDICT)
        rounds = click.option("--rounds", type=least, default=measurement.rounds, show_default=True)
        options.append(rounds)

    def command(**arguments: Any) -> None:
        run(measurement, **arguments)

    for option in options:
        option(command)
    return click.command(measurement.name, help=measurement.question)(command)


def run(
    measurement: Measurement, out: Path | None, quick: bool, rounds: int = 1, **arguments: Any
) -> list[Finding]:
    """Measure, write what was measured, and print it; return what was found."""
    folder = out or (REHEARSALS if quick else results_folder())
    path = folder / f"{measurement.file.format(**arguments)}.json"
    stored = read_json(path) if path.exists() else {}
    request = Request(1 if quick else rounds, quick, stored)
    findings: list[Finding] = []
    for report in measurement.measure(request, **arguments):
        report = replace(report, parameters={**arguments, **report.parameters})
        document = document_of(
            measurement.name, measurement.title, measurement.method, report, request
        )
        write(document, path)
        findings = list(report.findings)
    if has_page(document):
        click.echo(page(document))
        click.echo(tally(findings))
    return findings


@main.command("bench")
@FOLDER
@QUICK
def bench(out: Path | None, quick: bool) -> None:
    """Run those of `make bench`; exit with status 1 if one failed, not if a target was missed."""
    start = monotonic()
    held: list[Finding] = []
    failed: list[str] = []
    for measurement in OF_BENCH:
        try:
            findings = run(measurement, out, quick, measurement.rounds)
        except click.ClickException as error:
            click.echo(f"{measurement.name}: {error.message}", err=True)
            failed.append(measurement.name)
        else:
            held += with_targets(measurement.name, findings)
    click.echo(f"\n{summary(held, failed)}, in {(monotonic() - start) / 60:.0f} minutes")
    sys.exit(1 if failed else 0)


def with_targets(name: str, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that have a target, with the measurement's name before their own."""
    held = [finding for finding in findings if finding.target]
    return [replace(finding, name=f"{name}: {finding.name}") for finding in held]


def summary(held: Sequence[Finding], failed: Sequence[str]) -> str:
    """Write all targets as one table, how many were met, and what failed."""
    failures = f"; failed: {listed(failed)}" if failed else ""
    return f"{table_of(held)}\n\n{tally(held)}{failures}"


for measurement in MEASUREMENTS:
    main.add_command(command_of(measurement))

if __name__ == "__main__":
    main()
