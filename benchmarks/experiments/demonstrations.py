"""Run the first demonstration again and again, and keep what each one decided.

    python -m benchmarks.experiments.demonstrations --repetitions 5
    python -m benchmarks.experiments.demonstrations --repetitions 5 --spinning 1
    python -m benchmarks.experiments.demonstrations --minutes 15

The last one is a long comparison, which says what is true on this machine on this day: no
demonstration should say the opposite of it, and those beside a spinning process should decide every
difference beyond a factor of 1.5.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, TypeAlias

import click

from backends.host import core_numbers
from benchmarks.experiments.under_load import MOST_SPINNING, bound_or_none, spinning
from benchmarks.harness.findings import read_json, results_folder, write_text
from benchmarks.harness.targets import markdown_table
from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.screen import screen_of
from parallel_core.comparison.storage import RESULT, read_comparison
from parallel_core.system.files import write_json
from parallel_core.system.machine import describe_machine
from parallel_core.system.subprocesses import supervise

NAME = "experiments/demonstrations"
REFERENCE = "reference"
"""The key of long comparisons; that of the demonstrations is the number of spinning processes."""
DEADLINE = 3600.0
"""The seconds that a comparison may take."""
MOST_REPETITIONS = 100
DECIDED = ("faster", "slower")
LARGE = 1.5

Demonstration: TypeAlias = dict[str, Any]
Pair: TypeAlias = tuple[str, str, str]
"""An experiment and the two sides that are compared in it."""


def demonstrate(options: Sequence[str]) -> Demonstration:
    """Run a comparison in fresh processes, and return what its first screen says."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = (
            *(sys.executable, "-P", "-m", "parallel_core", "compare", "--out", str(out)),
            *options,
        )
        began = monotonic()
        outcome = asyncio.run(supervise(command, DEADLINE, set(core_numbers())))
        seconds = monotonic() - began
        if outcome.status:
            raise click.ClickException(outcome.reason(DEADLINE))
        comparison = read_comparison(out / RESULT)
    analysis = analyse(comparison)
    screen = screen_of(analysis)
    figures = [figure for _, of_row in screen.rows for figure in of_row]
    return {
        "seconds": round(seconds, 1),
        "measuring_seconds": round(comparison.seconds, 1),
        "rounds": comparison.rounds,
        "headline": screen.headline,
        "figures": len(figures),
        "marked": sum(figure.startswith("~") or figure.endswith(("?", "!")) for figure in figures),
        "differences": [
            {
                "experiment": difference.cell.experiment,
                "side": difference.cell.side,
                "against": difference.against.side,
                "ratio": [bound_or_none(bound) for bound in astuple(difference.ratio)],
                "verdict": difference.verdict,
            }
            for experiment in analysis.experiments
            for difference in (*experiment.between_frameworks, *experiment.between_engines)
        ],
    }


def table(document: Mapping[str, Sequence[Demonstration]]) -> str:
    """Write a row for each demonstration: its seconds, its marks, how many differences it decided,
    and of how many the long comparison says the opposite.
    """
    truth: dict[Pair, str] = {}
    for demonstration in document.get(REFERENCE, ()):
        truth |= verdicts_of(demonstration)
    rows = []
    for load, demonstrations in document.items():
        for demonstration in demonstrations:
            verdicts = verdicts_of(demonstration)
            decided = {pair for pair, verdict in verdicts.items() if verdict in DECIDED}
            large = {
                pair_of(difference)
                for difference in demonstration["differences"]
                if not 1 / LARGE <= difference["ratio"][0] <= LARGE
            }
            opposite = {
                pair
                for pair in decided
                if truth.get(pair) in DECIDED and truth[pair] != verdicts[pair]
            }
            row = {
                "beside": load if load == REFERENCE else f"{load} spinning",
                "seconds": f"{demonstration['seconds']:.0f}",
                "rounds": f"{demonstration['rounds']}",
                "figures marked": f"{demonstration['marked']} of {demonstration['figures']}",
                "differences decided": f"{len(decided)} of {len(verdicts)}",
                f"beyond a factor of {LARGE}": f"{len(large & decided)} of {len(large)}",
                "reversed": f"{len(opposite)}" if truth else "unknown",
            }
            rows.append(row)
    return markdown_table(list(rows[0]), [list(row.values()) for row in rows])


def verdicts_of(demonstration: Demonstration) -> dict[Pair, str]:
    """Return what a demonstration says of each difference."""
    return {
        pair_of(difference): difference["verdict"] for difference in demonstration["differences"]
    }


def pair_of(difference: Mapping[str, Any]) -> Pair:
    """Return what a difference is between."""
    return difference["experiment"], difference["side"], difference["against"]


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=results_folder)
@click.option("--spinning", "processes", type=click.IntRange(0, MOST_SPINNING), default=0)
@click.option("--repetitions", type=click.IntRange(1, MOST_REPETITIONS), default=1)
@click.option("--minutes", type=click.IntRange(1, 60), help="A long comparison instead.")
def main(out: Path, processes: int, repetitions: int, minutes: int | None) -> None:
    """Run demonstrations beside so many spinning processes, and add them to
    OUT/experiments/demonstrations.json.
    """
    path = out / f"{NAME}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = read_json(path) if path.exists() else {}
    key = str(processes) if minutes is None else REFERENCE
    options = ["--quick"] if minutes is None else ["--minutes", str(minutes), "--no-traces"]
    done: dict[str, list[Demonstration]] = document.get("demonstrations", {})
    for _ in range(repetitions):
        with spinning(processes):
            done.setdefault(key, []).append(demonstrate(options))
        # Each is kept at once: the series takes long.
        machine = describe_machine()
        saved = {"schema": 1, "benchmark": NAME, "machine": machine, "demonstrations": done}
        write_json(path, saved)
        write_text(path.with_suffix(".md"), f"{table(done)}\n")


if __name__ == "__main__":
    main()
