"""How often a planted fault is named by the part of the time that it is in, on the real machine.

    python -m benchmarks planted-faults --over torch

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
from backends import Array, Backend, Device
from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.runs import spinning
from benchmarks.harness.targets import markdown_table
from parallel_core.comparison.account import PARTS, account_of, loudness_of, time_difference
from parallel_core.comparison.cells import Cell, CellResults
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.copying import BEYOND_CACHES
from parallel_core.measurement.fresh_process import measured_in, measuring_command
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import interleave
from parallel_core.measurement.timing import measure as timed_on
from parallel_core.system.machine import ROOT
from parallel_core.system.subprocesses import lifeline

TRIALS = 20
HEADINGS = ("planted", "its part", "that part named first", "another one named", "size / planted")
ENGINE = "async"
OVER = "PARALLEL_CORE_PLANTED_OVER"
"""The environment variable that names the backend in which faults are planted."""
# Nothing hides the copies of a single result, and issuing one that is large is a small part of it.
COPIES, SIZE = 250, 1600
WITHOUT_FAULT: Mapping[str, Mapping[str, Any]] = {
    "parallel": {"size": 520, "rounds": 5, "budget": 4},
    "async": {"size": 200, "steps": 500, "rounds": 4, "budget": 3},
    "overlap": {"size": SIZE, "products": 1, "copies": COPIES, "rounds": 3, "budget": 6},
}
"""The options of each experiment that shows a fault."""
DESTINATIONS = BEYOND_CACHES // (SIZE * SIZE * 4)
"""Of copies in turn, as many as the experiment takes."""
LAUNCHES = 500
"""So many are timed, to find out how much later they are."""
DELAYS = {"slow-launches": 300e-6, "slower-launches": 20e-6}
"""The seconds that are added to each launch."""
Plain: TypeAlias = Mapping[str, CellResults]
"""Results without a fault, by experiment."""
Judgement: TypeAlias = dict[str, Any]
"""What a comparison names of a fault, the size of that part, and how much was planted."""


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


def operations_of(plain: Plain) -> float:
    """Return the seconds of the operations of `parallel`."""
    return median(account_of(plain["parallel"], EXPERIMENTS["parallel"].case)["operations"])


def launched_later(plain: Plain, fault: str) -> float:
    """Return how much longer all launches of the main case of `async` take, timed here: a wait is
    never exact.
    """
    faulty = Planted(fault, 2, "cpu", ENGINE, None)
    x = faulty.asarray(np.zeros((1, 1), np.float32), faulty.devices[0])

    def issue(backend: Any) -> None:
        y = x
        for _ in range(LAUNCHES):
            y = backend.launch(faulty.ops.add, y, 1)

    cases = {
        "real": partial(timed_on, faulty.real, partial(issue, faulty.real)),
        "faulty": partial(timed_on, faulty, partial(issue, faulty)),
    }
    real, late = interleave(cases, 9)
    added = (late.dispatch_median - real.dispatch_median) / LAUNCHES
    return added * int(plain["async"].valid[0].parameters["steps"])


def taking_turns(plain: Plain) -> float:
    """Return the seconds that `parallel` takes longer if its devices take turns."""
    results = plain["parallel"]
    case = EXPERIMENTS["parallel"].case
    together = results.cases(case)[0]
    in_turn = sum(median(results.medians(part)) for part in together.parts)
    return in_turn - median(results.medians(case))


def copied_twice(_: Plain) -> float:
    """Return how much longer copies take if each is made twice, timed here: no part of a comparison
    is in it.
    """
    backend = backends.load(os.environ[OVER], 2, "cpu", ENGINE)
    start, end = backend.devices
    values = np.ones((SIZE, SIZE), np.float32)
    x = backend.asarray(values, start)
    buffers = [backend.asarray(values, end) for _ in range(DESTINATIONS)]

    def copy(times: int) -> None:
        for number in range(COPIES):
            turn = number % DESTINATIONS
            for _ in range(times):
                buffers[turn] = backend.copy_to(x, end, out=buffers[turn])

    cases = {
        "once": partial(timed_on, backend, partial(copy, 1)),
        "twice": partial(timed_on, backend, partial(copy, 2)),
    }
    once, twice = interleave(cases, 5)
    return twice.median - once.median


FAULTS: Mapping[str, Fault] = {
    "twice": Fault("every multiplication twice", "parallel", "operations", operations_of),
    "slow-launches": Fault(
        "+ 300 μs a launch", "async", "overhead", partial(launched_later, fault="slow-launches")
    ),
    "slower-launches": Fault(
        "+ 20 μs a launch", "async", "overhead", partial(launched_later, fault="slower-launches")
    ),
    "copies-twice": Fault("every copy twice", "overlap", "transfer", copied_twice),
    "one-queue": Fault("one queue instead of two", "parallel", "rest", taking_turns),
    "neighbour": Fault("a spinning neighbour", "parallel", None),
}


class Planted:
    """A backend with a fault; what it does not change is the real one's."""

    def __init__(self, fault: str, *arguments: Any) -> None:
        self.name = fault
        self.real: Backend = backends.load(os.environ[OVER], *arguments)
        self.ops = TwiceMultiplied(self.real.ops) if fault == "twice" else self.real.ops
        self._last_device: object = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def launch(self, fn: Callable[..., Array], *args: Array) -> Array:
        """Launch as the real backend does, later, or when the other devices are idle."""
        until = perf_counter() + DELAYS.get(self.name, 0)
        while perf_counter() < until:
            pass
        if self.name == "one-queue":
            device = device_of(args)
            if device != self._last_device:
                self.real.waitall()
            self._last_device = device
        return self.real.launch(fn, *args)

    def copy_to(self, x: Array, device: Device, out: Array | None = None) -> Array:
        """Copy once or twice."""
        copied = self.real.copy_to(x, device, out=out)
        if self.name == "copies-twice":
            copied = self.real.copy_to(x, device, out=copied)
        return copied


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


def device_of(args: Sequence[Any]) -> object:
    """Return the device of the first argument, as its framework calls it."""
    x = args[0]
    while isinstance(x, tuple):
        x = x[0]
    return getattr(x, "device", None) or x.context


def entry_point_of(fault: str) -> str:
    """Return the name in this module of what loads a backend with a fault."""
    return fault.replace("-", "_")


globals().update({entry_point_of(fault): partial(Planted, fault) for fault in FAULTS})


@contextmanager
def plugged_in(over: str) -> Iterator[None]:
    """Within a `with` block, let processes that are started find the backends with faults by their
    names.
    """
    lines = ["[parallel_core.backends]"]
    lines += [f"{fault} = {__name__}:{entry_point_of(fault)}" for fault in FAULTS]
    with TemporaryDirectory() as folder:
        metadata = Path(folder) / "planted-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
        path = os.pathsep.join(filter(None, (folder, str(ROOT), os.environ.get("PYTHONPATH"))))
        with patch.dict(os.environ, {OVER: over, "PYTHONPATH": path}):
            yield


def measure(request: Request, over: str, faults: Sequence[str]) -> Iterator[Report]:
    """Compare each fault with no fault, trial by trial, and count what is named."""
    trials: list[dict[str, Judgement]] = []
    with plugged_in(over):
        for number in range(1 if request.quick else TRIALS):
            click.echo(f"{over}: trial {number + 1} of {TRIALS}", err=True)
            trials.append(trial(over, request.rounds, faults or [*FAULTS]))
            table = markdown_table(HEADINGS, counts(trials))
            yield Report(notes=[table], data={"trials": trials})


def trial(over: str, rounds: int, faults: Sequence[str]) -> dict[str, Judgement]:
    """Compare each fault with no fault, and return what was named, the size of the part, and the
    expected one.
    """
    experiments = list(dict.fromkeys(FAULTS[name].experiment for name in faults))
    of_backend = [name for name in faults if FAULTS[name].part is not None]
    of_neighbour = [name for name in faults if FAULTS[name].part is None]
    results: dict[str, list[Result]] = {name: [] for name in (*experiments, *faults)}

    def take(names: Sequence[str], cells: Sequence[tuple[str, str]]) -> None:
        for name, result in zip(names, measured(cells), strict=True):
            results[name].append(result)

    for _ in range(rounds):
        # Those without a fault share a process, and those with one another, so that no pair of
        # cells shares one.
        take(experiments, [(over, name) for name in experiments])
        take(of_backend, [(name, FAULTS[name].experiment) for name in of_backend])
        if of_neighbour:
            with spinning(1):
                take(of_neighbour, [(over, FAULTS[name].experiment) for name in of_neighbour])
    plain = {
        name: CellResults(Cell(name, "plain", ENGINE), tuple(results[name])) for name in experiments
    }
    return {name: judged(name, results[name], plain) for name in faults}


def measured(cells: Sequence[tuple[str, str]]) -> list[Result]:
    """Run cells, each a backend and an experiment, in one fresh process, as `compare --quick`
    does.
    """
    runs = []
    for backend, experiment in cells:
        options = {"backend": backend, "engine": ENGINE, "device-kind": "cpu"}
        runs.append((experiment, {**options, **WITHOUT_FAULT[experiment]}))
    with lifeline() as stdin:
        command = measuring_command(sys.executable, runs)
        done = subprocess.run(command, stdin=stdin, stdout=subprocess.PIPE, text=True, check=False)
    return list(measured_in(done.stdout))


def judged(name: str, faulty: Sequence[Result], plain: Plain) -> Judgement:
    """Return what a comparison names, how much of it there is, how much was planted, and how much
    longer all took.
    """
    fault = FAULTS[name]
    without_fault = plain[fault.experiment]
    with_fault = CellResults(Cell(fault.experiment, name, ENGINE), tuple(faulty))
    if not with_fault.valid or not without_fault.valid:
        unknown = dict.fromkeys(("seconds", "longer_seconds", "planted_seconds"))
        return {"verdict": "invalid", "named": [], "withheld": "", **unknown}
    loudness = loudness_of((with_fault, without_fault))
    difference = time_difference(with_fault, without_fault, loudness=loudness)
    part = difference.parts.get(fault.part or "")
    return {
        "verdict": difference.verdict,
        "named": list(difference.reasons),
        "withheld": difference.withheld,
        "seconds": part.estimate if part else None,
        "longer_seconds": difference.seconds.estimate,
        "planted_seconds": fault.expected(plain) if fault.expected else None,
    }


def counts(trials: Sequence[Mapping[str, Judgement]]) -> list[list[str]]:
    """Return a row for each fault: how often its part was named first, and another one, and its
    size.
    """
    return [counts_of(FAULTS[name], [judged[name] for judged in trials]) for name in trials[0]]


def counts_of(fault: Fault, judgements: Sequence[Judgement]) -> list[str]:
    """Return the row of a fault."""
    right = wrong = 0
    sizes = []
    for judgement in judgements:
        named = judgement["named"]
        right += named[:1] == ([fault.part] if fault.part else [])
        wrong += any(part != fault.part for part in named)
        if judgement["seconds"] and judgement["planted_seconds"]:
            sizes.append(judgement["seconds"] / judgement["planted_seconds"])
    total = len(judgements)
    part = PARTS[fault.part] if fault.part else "none: disturbed"
    size = f"{median(sizes):.2f} ({min(sizes):.2f}–{max(sizes):.2f})" if sizes else "–"
    return [fault.what, part, f"{right} of {total}", f"{wrong} of {total}", size]


MEASUREMENT = Measurement(
    file="planted-faults/planted-faults-{over}",
    title="Planted faults",
    question="How often is a planted fault named by the part of the time that it is in?",
    method=Method(1, "2026-11-26", "with and without a fault in different processes of a round"),
    measure=measure,
    rounds=5,
    options=[
        click.option("--over", type=click.Choice(["torch", "mxnet"]), default="torch"),
        click.option(
            "--fault",
            "faults",
            type=click.Choice([*FAULTS]),
            multiple=True,
            help="Default: all. With --out, for the file is named like that of all.",
        ),
    ],
)
