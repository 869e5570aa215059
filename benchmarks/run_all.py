"""Run all benchmarks, one after the other, and end with one summary of the targets.

python -m benchmarks.run_all
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import click

from benchmarks.harness.findings import read_json, results_folder
from benchmarks.harness.targets import Finding, table_of, tally
from parallel_core.system.formatting import listed

NAMES = (
    "abstraction",
    "allreduce",
    "training/speed",
    "training/exchange",
    "training/growth",
)


def summary(benchmarks: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Write all targets as one table, and how many were met; None stands for a benchmark that
    failed.
    """
    held = [
        replace(finding, name=f"{name}: {finding.name}")
        for name, result in benchmarks.items()
        for finding in map(Finding.from_json, result["findings"] if result else ())
        if finding.target
    ]
    failed = [name for name, result in benchmarks.items() if result is None]
    counts = tally([finding.verdict for finding in held])
    return f"{table_of(held)}\n\n{counts}{f'; failed: {listed(failed)}' if failed else ''}"


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=results_folder)
@click.option("--quick", is_flag=True, help="Less work, in one round: to see that they run.")
def main(out: Path, quick: bool) -> None:
    """Run all benchmarks; exit with status 1 if one failed, not if a target was missed."""
    results: dict[str, Any] = {}
    start = monotonic()
    options = [
        *([] if out == results_folder() else ["--out", str(out)]),
        *(["--quick"] if quick else []),
    ]
    for name in NAMES:
        command = [sys.executable, "-m", f"benchmarks.{name.replace('/', '.')}", *options]
        done = subprocess.run(command, check=False)
        results[name] = read_json(out / f"{name}.json") if done.returncode == 0 else None
    click.echo(f"\n{summary(results)}, in {(monotonic() - start) / 60:.0f} minutes")
    sys.exit(1 if None in results.values() else 0)


if __name__ == "__main__":
    main()
