"""How often a planted fault is named by the part of the time that it is in, on the real machine.

    python -m benchmarks.harness.planted_faults --over torch --trials 20 \
        --out benchmarks/results/NAME

A backend with one fault is compared with the same backend without it, in fresh processes in
interleaved rounds, by the code of `parallel-core compare`. It wraps the real one: every
multiplication made twice, time added to every launch, every copy made twice, or devices that take
turns as if they had one queue. A neighbour that spins is no fault of the backend: nothing may be
named then. The right part has to be named in at least 18 of 20 trials, another one in at most one,
and its size has to be right within 20 %, in the median.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, TypeAlias
from unittest.mock import patch

import click
import numpy as np

import backends
from backends import Array, Device
from benchmarks.harness.targets import bounds
from parallel_core.comparison.account import PARTS, account_of, loudness_of, time_difference
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.copying import BEYOND_CACHES
from parallel_core.measurement.fresh_process import measured_in, measuring_command
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import interleave, measure
from parallel_core.system.files import write_json
from parallel_core.system.machine import ROOT, describe_machine
from parallel_core.system.subprocesses import lifeline

HEADINGS = ("planted", "its part", "that part named first", "another one named", "size / planted")
ENGINE = "async"
OVER = "PARALLEL_CORE_PLANTED_OVER"
"""The environment variable that names the backend in which faults are planted."""
# Nothing hides the copies of a single result, and issuing one that is large is a small part of it.
COPIES, SIZE = 250, 1600
COPYING = {"size": SIZE, "products": 1, "copies": COPIES, "rounds": 3, "budget": 6}
WITHOUT_FAULT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "parallel": ("parallel", {"size": 520, "rounds": 5, "budget": 4}),
    "async": ("async", {"size": 200, "steps": 500, "rounds": 4, "budget": 3}),
    "overlap": ("overlap", COPYING),
}
"""The experiment and its options, for each cell without a fault."""
DESTINATIONS = BEYOND_CACHES // (SIZE * SIZE * 4)
"""Of copies in turn, as many as the experiment takes."""
Plain: TypeAlias = Mapping[str, CellResults]
"""Results without a fault, by the names of WITHOUT_FAULT."""


@dataclass(frozen=True)
class Fault:
    """What is planted, the experiment that shows it, and the part that has to be named: none for a
    neighbour.
    """

    what: str
    experiment: str
    part: str | None
    expected: Callable[[Plain], float] | None = None
    """The seconds that it adds, from the results without it; None for a neighbour."""


LAUNCHES = 500
DELAYS = {"slow-launches": 300e-6, "slower-launches": 20e-6}


def main_seconds(results: CellResults) -> float:
    """Return the seconds of the experiment's main case."""
    return median(results.medians(EXPERIMENTS[results.cell.experiment].case))


def operations_of(plain: Plain) -> float:
    """Return the seconds of the operations of `parallel`."""
    return median(account_of(plain["parallel"], EXPERIMENTS["parallel"].case)["operations"])


def launched_later(plain: Plain, fault: str) -> float:
    """Return how much longer all launches of the main case of `async` take, timed here: a wait is
    never exact.
    """
    faulty = Planted(fault, 2, "cpu", ENGINE, None)
    one = faulty.asarray(np.zeros((1, 1), np.float32), faulty.devices[0])

    def issue(backend: Any) -> None:
        x = one
        for _ in range(LAUNCHES):
            x = backend.launch(faulty.ops.add, x, 1)

    sides = (faulty._real, faulty)
    cases = {
        str(place): partial(measure, side, partial(issue, side)) for place, side in enumerate(sides)
    }
    without, late = interleave(cases, 9)
    added = (late.dispatch_median - without.dispatch_median) / LAUNCHES
    return added * int(plain["async"].valid[0].parameters["steps"])


def taking_turns(plain: Plain) -> float:
    """Return the seconds that `parallel` takes longer if its devices take turns."""
    together, *_ = plain["parallel"].cases(EXPERIMENTS["parallel"].case)
    return sum(median(plain["parallel"].medians(part)) for part in together.parts) - main_seconds(
        plain["parallel"]
    )


def copied_twice(_: Plain) -> float:
    """Return how much longer copies take if each is made twice, timed here: no part of a comparison
    is in it.
    """
    backend = backends.load(os.environ[OVER], 2, "cpu", ENGINE)
    start, end = backend.devices
    x, *buffers = (
        backend.asarray(np.ones((SIZE, SIZE), np.float32), device)
        for device in (start, *[end] * DESTINATIONS)
    )

    def copy(times: int) -> None:
        for number in range(times * COPIES):
            turn = number // times % DESTINATIONS
            buffers[turn] = backend.copy_to(x, end, out=buffers[turn])

    once, twice = interleave(
        {str(times): partial(measure, backend, partial(copy, times)) for times in (1, 2)}, 5
    )
    return twice.median - once.median


FAULTS: Mapping[str, Fault] = {
    "twice": Fault("every multiplication twice", "parallel", "operations", operations_of),
    **{
        name: Fault(
            f"+ {1e6 * by:.0f} μs a launch",
            "async",
            "overhead",
            partial(launched_later, fault=name),
        )
        for name, by in DELAYS.items()
    },
    "copies-twice": Fault("every copy twice", "overlap", "transfer", copied_twice),
    "one-queue": Fault("one queue instead of two", "parallel", "rest", taking_turns),
    "neighbour": Fault("a spinning neighbour", "parallel", None),
}


class Planted:
    """A backend with a fault; what it does not change is the real one's."""

    def __init__(self, fault: str, *arguments: Any) -> None:
        self.name = fault
        self._real = backends.load(os.environ[OVER], *arguments)
        self._last: object = None
        self.ops = TwiceMultiplied(self._real.ops) if fault == "twice" else self._real.ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Launch as the real backend does, later, or when the other devices are idle."""
        if delay := DELAYS.get(self.name):
            until = perf_counter() + delay
            while perf_counter() < until:
                pass
        if self.name == "one-queue" and (where := place_of(args)) != self._last:
            self._real.waitall()
            self._last = where
        return self._real.launch(fn, *args)

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Copy once or twice."""
        copied = self._real.copy_to(x, device, out=out)
        return self._real.copy_to(x, device, out=copied) if self.name == "copies-twice" else copied


class TwiceMultiplied:
    """Operations that multiply matrices twice and return the mean of the two."""

    def __init__(self, ops: Any) -> None:
        self._real = ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def matmul(self, a: Array, b: Array) -> Array:
        """Multiply twice; the sum needs both, so that no compiler leaves one out."""
        real = self._real
        return real.multiply(real.add(real.matmul(a, b), real.matmul(a, b)), 0.5)


def place_of(args: Sequence[Any]) -> object:
    """Return the device of the first argument, as its framework calls it."""
    first = args[0]
    while isinstance(first, tuple):
        first = first[0]
    return getattr(first, "device", None) or first.context


# Entry points name what loads each of them.
globals().update({fault.replace("-", "_"): partial(Planted, fault) for fault in FAULTS})


@contextmanager
def plugged_in(over: str) -> Iterator[None]:
    """Within a `with` block, let processes that are started find the backends with faults by their
    names.
    """
    with TemporaryDirectory() as folder:
        metadata = Path(folder) / "planted-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        entries = [
            f"{fault} = benchmarks.harness.planted_faults:{fault.replace('-', '_')}"
            for fault in FAULTS
        ]
        (metadata / "entry_points.txt").write_text(
            "\n".join(["[parallel_core.backends]", *entries]) + "\n"
        )
        path = filter(None, (folder, str(ROOT), os.environ.get("PYTHONPATH")))
        with patch.dict(os.environ, {OVER: over, "PYTHONPATH": os.pathsep.join(path)}):
            yield


def measured(cells: Sequence[tuple[str, str]]) -> list[Result]:
    """Run cells, each a backend and one of WITHOUT_FAULT, in one fresh process, as `compare
    --quick` does.
    """
    same = {"engine": ENGINE, "device-kind": "cpu"}
    chosen = [(backend, *WITHOUT_FAULT[name]) for backend, name in cells]
    runs = [
        (experiment, {**same, "backend": backend, **options})
        for backend, experiment, options in chosen
    ]
    with lifeline() as stdin:
        command = measuring_command(sys.executable, runs)
        done = subprocess.run(command, stdin=stdin, stdout=subprocess.PIPE, text=True, check=False)
    return list(measured_in(done.stdout))


def trial(over: str, rounds: int, faults: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Compare each fault with no fault, and return what was named, the size of the part, and the
    expected one.
    """
    of_backend = [name for name in faults if FAULTS[name].part is not None]
    beside = [name for name in faults if name not in of_backend]
    shown_by = {FAULTS[name].experiment for name in faults}
    without = {name: chosen for name, chosen in WITHOUT_FAULT.items() if name in shown_by}
    found: dict[str, list[Result]] = {name: [] for name in (*without, *faults)}

    def take(names: Sequence[str], cells: Sequence[tuple[str, str]]) -> None:
        for name, result in zip(names, measured(cells), strict=True):
            found[name].append(result)

    for _ in range(rounds):
        # Those without a fault share a process, and those with one another, so that no pair of
        # cells shares one.
        take([*without], [(over, name) for name in without])
        take(of_backend, [(name, FAULTS[name].experiment) for name in of_backend])
        if not beside:
            continue
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
            try:
                take(beside, [(over, FAULTS[name].experiment) for name in beside])
            finally:
                neighbour.kill()
    plain = {
        name: CellResults(Cell(experiment, "plain", ENGINE), tuple(found[name]))
        for name, (experiment, _) in without.items()
    }
    return {name: judged(name, FAULTS[name], found[name], plain) for name in faults}


def judged(name: str, fault: Fault, faulty: Sequence[Result], plain: Plain) -> dict[str, Any]:
    """Return what a comparison names, how much of it there is, how much was planted, and how much
    longer all took.
    """
    results, others = (
        CellResults(Cell(fault.experiment, name, ENGINE), tuple(faulty)),
        plain[fault.experiment],
    )
    if not results.valid or not others.valid:
        nothing = dict.fromkeys(("seconds", "longer_seconds", "planted_seconds"))
        return {"verdict": "invalid", "named": [], "withheld": "", **nothing}
    difference = time_difference(results, others, noises=loudness_of((results, others)))
    size = difference.parts.get(fault.part or "")
    return {
        "verdict": difference.verdict,
        "named": list(difference.reasons),
        "withheld": difference.withheld,
        "seconds": size.estimate if size else None,
        "longer_seconds": difference.seconds.estimate,
        "planted_seconds": fault.expected(plain) if fault.expected else None,
    }


def counts(document: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each fault: how often its part was named, and another one, with 95 %
    intervals.
    """
    rows = []
    for name in document["trials"][0]:
        fault, trials = FAULTS[name], [one[name] for one in document["trials"]]
        count = len(trials)
        right = sum(
            one["named"][:1] == [fault.part] if fault.part else not one["named"] for one in trials
        )
        wrong = sum(any(part != fault.part for part in one["named"]) for one in trials)
        sizes = [
            one["seconds"] / one["planted_seconds"]
            for one in trials
            if one["planted_seconds"] and one["seconds"]
        ]
        size = f"{median(sizes):.2f} ({min(sizes):.2f}–{max(sizes):.2f})" if sizes else "–"
        named = [f"{some} of {count} ({bounds(some, count)})" for some in (right, wrong)]
        rows.append(
            [fault.what, PARTS[fault.part] if fault.part else "none: disturbed", *named, size]
        )
    return rows


@click.command()
@click.option("--over", type=click.Choice(["torch", "mxnet"]), default="torch", show_default=True)
@click.option("--trials", type=click.IntRange(min=1), default=20, show_default=True)
@click.option(
    "--rounds", type=click.IntRange(min=3), default=5, show_default=True, help="Processes a cell."
)
@click.option(
    "--fault",
    "faults",
    type=click.Choice([*FAULTS]),
    multiple=True,
    default=[*FAULTS],
    help="Default: all.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="No trial begins later.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A folder.")
def main(
    over: str, trials: int, rounds: int, faults: Sequence[str], minutes: float, out: Path
) -> None:
    """Count what planted faults are named by."""
    chosen = "" if len(faults) == len(FAULTS) else "".join(f"-{name}" for name in faults)
    began, path = perf_counter(), out / f"planted-faults-{over}{chosen}.json"
    out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, dict[str, Any]]] = []
    with plugged_in(over):
        while len(found) < trials and perf_counter() - began < 60 * minutes:
            click.echo(f"{over}: trial {len(found) + 1} of {trials}", err=True)
            found.append(trial(over, rounds, faults))
            document = {"machine": describe_machine(), "rounds": rounds, "trials": found}
            write_json(path, document)
    click.echo("\n".join(" | ".join(row) for row in counts(document)))


if __name__ == "__main__":
    main()
