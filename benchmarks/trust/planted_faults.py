"""How often a planted fault is named by the part of the time that it is in, on the real machine.

    python -m benchmarks planted-faults --over torch

A backend with one fault is compared with the same backend without it, in fresh processes that
take turns, by the code of `parallel-core compare`, with or without spinning processes beside them.
The right part has to be named in nine of ten trials, another one in at most one of twenty, and its
size has to be right within 20 %, in the median.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from statistics import median
from typing import Any, TypeAlias

import click
import numpy as np

import backends
from backends.registry.files import named
from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.runs import spinning
from benchmarks.harness.targets import markdown_table
from benchmarks.harness.turns import measured_in_turns
from benchmarks.trust import planted_backends
from benchmarks.trust.planted_backends import (
    OVER,
    CopiesTwice,
    OneQueue,
    Planted,
    SlowerLaunches,
    SlowLaunches,
    Twice,
)
from parallel_core.compare.results import Cell, CellResults
from parallel_core.compare.time_differences import PARTS, account_of, loudness_of, time_difference
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.copying import BEYOND_CACHES
from parallel_core.measurement.request import Request as Asked
from parallel_core.measurement.result import Result
from parallel_core.measurement.timing import interleave
from parallel_core.measurement.timing import measure as timed_on

HEADINGS = ("planted", "its part", "that part named first", "another one named", "size / planted")
ENGINE = "async"
# Nothing hides the copies of a single result, and issuing one that is large is a small part of it.
COPIES, SIZE = 250, 1600
WITHOUT_FAULT: Mapping[str, Mapping[str, Any]] = {
    "parallel": {"size": 520, "rounds": 5, "budget": 3},
    "async": {"size": 200, "steps": 500, "rounds": 4, "budget": 2},
    "overlap": {"size": SIZE, "products": 1, "copies": COPIES, "rounds": 3, "budget": 4},
}
"""The options of each experiment that shows a fault."""
DESTINATIONS = BEYOND_CACHES // (SIZE * SIZE * 4)
"""Of copies in turn, as many as the experiment takes."""
LAUNCHES = 500
"""So many are timed, to find out how much later they are."""
Plain: TypeAlias = Mapping[str, CellResults]
"""Results without a fault, by experiment."""
Judgement: TypeAlias = dict[str, Any]
"""What a comparison names of a fault, the size of that part, and how much was planted."""


@dataclass(frozen=True)
class Fault:
    """What is planted, and the experiment that shows it."""

    title: str
    experiment: str
    part: str
    """The part of the time that has to be named."""
    backend: type[Planted]
    expected: Callable[[Plain], float]
    """The seconds that it adds, from the results without it."""


def operations_of(plain: Plain) -> float:
    """Return the seconds of the operations of `parallel`."""
    return median(account_of(plain["parallel"], EXPERIMENTS["parallel"].case)["operations"])


def launched_later(plain: Plain, backend: type[Planted]) -> float:
    """Return how much longer all launches of the main case of `async` take, timed here: a wait is
    never exact.
    """
    faulty = backend(2, "cpu", ENGINE, None)
    x = faulty.asarray(np.zeros((1, 1), np.float32), faulty.devices[0])

    def issue(side: Any) -> None:
        y = x
        for _ in range(LAUNCHES):
            y = side.launch(faulty.ops.add, y, 1)

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


def slow_launches(microseconds: int, backend: type[Planted]) -> Fault:
    """Return the fault that every launch takes so much longer."""
    expected = partial(launched_later, backend=backend)
    return Fault(f"+ {microseconds} μs a launch", "async", "overhead", backend, expected)


FAULTS: Mapping[str, Fault] = {
    "twice": Fault("every multiplication twice", "parallel", "operations", Twice, operations_of),
    "slow-launches": slow_launches(300, SlowLaunches),
    "slower-launches": slow_launches(20, SlowerLaunches),
    "copies-twice": Fault("every copy twice", "overlap", "transfer", CopiesTwice, copied_twice),
    "one-queue": Fault("one queue instead of two", "parallel", "rest", OneQueue, taking_turns),
}


def plant(over: str) -> None:
    """Let this process, and those that it starts, find the backends with faults by their classes'
    names.
    """
    os.environ[OVER] = over
    for fault in FAULTS.values():
        named(f"{planted_backends.__file__}:{fault.backend.__name__}")


def measure(
    request: Request, over: str, trials: int, spinners: int, faults: Sequence[str]
) -> Iterator[Report]:
    """Compare each fault with no fault, trial by trial, and count what is named; trials beside
    another number of spinning processes stay.
    """
    plant(over)
    all_trials = dict(request.stored.get("trials", {}))
    done: list[dict[str, Judgement]] = []
    for number in range(1 if request.quick else trials):
        click.echo(f"{over}: trial {number + 1} of {trials}", err=True)
        with spinning(spinners):
            done.append(trial(over, request.rounds, faults or [*FAULTS]))
        all_trials[str(spinners)] = done
        tables = []
        for beside, of_trials in sorted(all_trials.items()):
            tables.append(f"Beside {beside} spinning processes:\n")
            tables.append(markdown_table(HEADINGS, counts(of_trials)) + "\n")
        yield Report(notes=tables, data={"trials": all_trials})


def trial(over: str, rounds: int, faults: Sequence[str]) -> dict[str, Judgement]:
    """Compare each fault with no fault, and return what was named, the size of the part, and the
    expected one.
    """
    processes = processes_of(faults)
    results: dict[str, list[Result]] = {name: [] for process in processes for name in process}
    for _ in range(rounds):
        asked = [requests_of(over, process) for process in processes]
        for process, measured in zip(processes, measured_in_turns(asked), strict=True):
            for name, result in zip(process, measured, strict=True):
                results[name].append(result)
    plain = {
        name: CellResults(Cell(name, "plain", ENGINE), tuple(results[name]))
        for name in processes[0]
    }
    return {name: judged(name, results[name], plain) for name in faults}


def processes_of(faults: Sequence[str]) -> list[list[str]]:
    """Return what the processes of a round measure, in the order of experiments: the first one each
    experiment without a fault, the others a fault of an experiment at most.
    """
    by_experiment: dict[str, list[str]] = {}
    for experiment in WITHOUT_FAULT:
        of_experiment = [name for name in faults if FAULTS[name].experiment == experiment]
        if of_experiment:
            by_experiment[experiment] = [experiment, *of_experiment]
    columns = zip_longest(*by_experiment.values())
    return [[name for name in column if name is not None] for column in columns]


def requests_of(over: str, names: Sequence[str]) -> dict[int, Asked]:
    """Return what a process is asked for, by the experiments' numbers: names are those of faults,
    or of experiments without one.
    """
    requests = {}
    for name in names:
        fault = FAULTS.get(name)
        experiment = fault.experiment if fault else name
        backend = fault.backend.__name__ if fault else over
        options = {"backend": backend, "engine": ENGINE, "device_kind": "cpu"}
        number = [*WITHOUT_FAULT].index(experiment)
        requests[number] = Asked.of(experiment, {**options, **WITHOUT_FAULT[experiment]})
    return requests


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
    noises = loudness_of((with_fault, without_fault))
    difference = time_difference(with_fault, without_fault, noises=noises)
    part = difference.parts.get(fault.part)
    return {
        "verdict": difference.verdict,
        "named": list(difference.reasons),
        "withheld": difference.withheld,
        "seconds": part.estimate if part else None,
        "longer_seconds": difference.seconds.estimate,
        "planted_seconds": fault.expected(plain),
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
        right += named[:1] == [fault.part]
        wrong += any(part != fault.part for part in named)
        if judgement["seconds"] and judgement["planted_seconds"]:
            sizes.append(judgement["seconds"] / judgement["planted_seconds"])
    total = len(judgements)
    size = f"{median(sizes):.2f} ({min(sizes):.2f}–{max(sizes):.2f})" if sizes else "–"
    return [fault.title, PARTS[fault.part], f"{right} of {total}", f"{wrong} of {total}", size]


MEASUREMENT = Measurement(
    file="trust/planted-faults-{over}",
    title="Planted faults",
    question="How often is a planted fault named by the part of the time that it is in?",
    method=Method(2, "2026-11-29", "processes with and without a fault take turns"),
    measure=measure,
    rounds=5,
    options=[
        click.option("--trials", type=click.IntRange(min=1), default=4, show_default=True),
        click.option("--spinning", "spinners", type=click.IntRange(0, 64), default=0),
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
