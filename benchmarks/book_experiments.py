"""What the book's experiments show on this machine: every figure from fresh processes, in interleaved rounds.

    python benchmarks/book_experiments.py --rounds 5 --out benchmarks/results/NAME

writes NAME.json (every result, whole) and NAME.md (the table). With --training it also trains LeNet for ten epochs on
one and two devices of both frameworks, which takes about ten minutes on two cores.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click


@dataclass(frozen=True)
class Cell:
    """One run of the program, and the metrics of it that are of interest, each with the range it should lie in."""

    arguments: tuple[str, ...]
    expected: tuple[tuple[str, tuple[float, float]], ...]


ANY = (float("-inf"), float("inf"))


def cell(experiment: str, backend: str, engine: str, *options: str, **expected: tuple[float, float]) -> Cell:
    return Cell((experiment, "--backend", backend, "--engine", engine, *options), tuple(expected.items()))


CELLS = tuple(
    made
    for backend in ("mxnet", "torch")
    for made in (
        cell("parallel", backend, "async", parallel_speedup=(1.7, 2.3)),
        cell("parallel", backend, "sync", parallel_speedup=(0.8, 1.2)),
        cell("overlap", backend, "async", overlap_efficiency=ANY),
        cell("overlap", backend, "sync", overlap_efficiency=ANY),
        cell("async", backend, "async", dispatch_fraction=(0, 0.05), async_speedup=ANY, launch_cost_seconds=ANY),
        cell("async", backend, "sync", dispatch_fraction=(0.9, 1.01), async_speedup=ANY, launch_cost_seconds=ANY),
    )
)
TRAINING = tuple(
    cell(
        "data-parallel",
        backend,
        "async",
        "--devices",
        devices,
        images_per_second=ANY,
        best_test_accuracy=(0.8, 1),
        test_accuracy=(0.75, 1),
    )
    for backend in ("mxnet", "torch")
    for devices in ("1", "2")
)


def measure(chosen: Cell) -> dict[str, Any]:
    """Run a cell in a fresh process and return its JSON; a failed run ends the benchmark with what it said."""
    command = [sys.executable, "-m", "parallel_core", "run", *chosen.arguments, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise click.ClickException(f"{' '.join(chosen.arguments)}: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def table(results: dict[Cell, list[dict[str, Any]]]) -> str:
    """Write the medians over processes, their extremes and the expected ranges as Markdown."""
    machine = next(iter(results.values()))[0]["environment"]
    memory = f"{machine['memory_bytes'] / 1e9:.0f} GB"
    lines = [
        ", ".join((machine["processor"], f"{machine['cores']} cores", memory, machine["system"])),
        f"Python {machine['python']}, {machine['utc']}",
        "",
        "| run | metric | median | lowest … highest | expected |",
        "| --- | --- | --- | --- | --- |",
    ]
    for chosen, found in results.items():
        for name, (low, high) in chosen.expected:
            values = [result["metrics"][name] for result in found]
            expected = "" if (low, high) == ANY else f"{low:g} … {high:g}"
            lines.append(
                f"| `{' '.join(chosen.arguments)}` | {name} | {median(values):.4g} "
                f"| {min(values):.4g} … {max(values):.4g} | {expected} |"
            )
        problems = {problem for result in found for problem in result["problems"]}
        lines += [f"| `{' '.join(chosen.arguments)}` | invalid | {problem} | | |" for problem in sorted(problems)]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--training", is_flag=True, help="Also train for ten epochs, once.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where to write, without suffix.")
def main(rounds: int, training: bool, out: Path) -> None:
    """Run the book's experiments on both frameworks and engines and compare them with what is expected."""
    results: dict[Cell, list[dict[str, Any]]] = {chosen: [] for chosen in CELLS}
    for turn in range(rounds):
        for number, chosen in enumerate(CELLS, 1):
            click.echo(f"round {turn + 1}/{rounds}, {number}/{len(CELLS)}: {' '.join(chosen.arguments)}", err=True)
            results[chosen].append(measure(chosen))
    if training:
        for chosen in TRAINING:
            click.echo(" ".join(chosen.arguments), err=True)
            results[chosen] = [measure(chosen)]
    out.parent.mkdir(parents=True, exist_ok=True)
    everything = [result for found in results.values() for result in found]
    out.with_suffix(".json").write_text(json.dumps(everything, ensure_ascii=False) + "\n")
    out.with_suffix(".md").write_text(table(results))
    click.echo(table(results))


if __name__ == "__main__":
    main()
