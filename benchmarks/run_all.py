"""Run all benchmarks, one after the other, and end with one summary of the targets.

python -m benchmarks.run_all
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import click

from benchmarks.harness.findings import results_folder, tally

NAMES = (
    "abstraction",
    "experiments/overlap",
    "allreduce",
    "training/speed",
    "training/exchange",
    "training/growth",
)


def summary(benchmarks: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Write which targets were met, by benchmark; None stands for one that failed."""
    lines = []
    for name, result in benchmarks.items():
        if result is None:
            lines.append(f"{name}: FAILED")
            continue
        lines += [
            f"{name}: {one['verdict']}: {one['name']}: {one['estimate']:.3g}{one['unit'] and ' '}{one['unit']}, "
            f"{kind} {bound:g}"
            for one in result["findings"]
            if one["target"]
            for kind, bound in one["target"].items()
        ]
    verdicts = [one["verdict"] for result in benchmarks.values() if result for one in result["findings"]]
    failed = [name for name, result in benchmarks.items() if result is None]
    return "\n".join([*lines, "", tally(verdicts) + (f"; failed: {', '.join(failed)}" if failed else "")])


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=results_folder)
@click.option("--quick", is_flag=True, help="Less work, in one round: to see that they run.")
def main(out: Path, quick: bool) -> None:
    """Run all benchmarks; exit with status 1 if one failed, not if a target was missed."""
    results: dict[str, Any] = {}
    start = monotonic()
    options = [*([] if out == results_folder() else ["--out", str(out)]), *(["--quick"] if quick else [])]
    for name in NAMES:
        command = [sys.executable, "-m", f"benchmarks.{name.replace('/', '.')}", *options]
        done = subprocess.run(command, check=False)
        results[name] = json.loads((out / f"{name}.json").read_text()) if done.returncode == 0 else None
    click.echo(f"\n{summary(results)}, in {(monotonic() - start) / 60:.0f} minutes")
    sys.exit(1 if None in results.values() else 0)


if __name__ == "__main__":
    main()
