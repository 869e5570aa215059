"""One run of an experiment's program: what it times and checks, and what it has found so far.

    def program(trial, size=1000):
        x = trial.normal(size, trial.devices[0])
        trial.time("run", multiplications(trial, x))

A program registers cases; they are timed in turn, in rounds within the budget, when it ends or
calls `trial.run`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, final

import numpy as np

from backends import Array, Backend, Device
from backends.process_groups import grouped
from parallel_core.experiments.runner.counting import without_numbers
from parallel_core.experiments.runner.formulas import Formula, interval_of
from parallel_core.experiments.runner.work import Timed, Work, account_of, labelled
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.over_rounds import MIN_NOISE
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Counted, Note, Result
from parallel_core.measurement.starter import ALONE, Turns
from parallel_core.measurement.timing import Timing, interleave, measure
from parallel_core.system.errors import RequestError

TIMED_SHARE = 0.9
"""The share of the budget until which cases are timed, unless the program says otherwise."""
LARGEST_ERROR = 1e-4
STARTING = 0.5
"""The share of a fresh process's time that goes by until it measures, about.

That is starting and importing.
"""
LEAST_BUDGET = 0.01
"""The seconds with which a process still takes one round."""


Options = Mapping[str, str | float | Sequence[str]]


def budget_ended(what: str, done: str) -> Note:
    """Say what the budget ended, and how much was done: `10 of 30 steps`."""
    return Note("budget-ended", f"The budget ended {what} after {done} (--budget gives more).")


def not_measured(what: str, reason: str) -> Note:
    """Say what was not measured, and why."""
    return Note("not-measured", f"No {what}: {reason}")


def _doubled(x: Array) -> Array:
    """Return twice an array: the least that a device can compute."""
    return x + x


@final
class Trial:
    """A backend, the program's parameters, and what the program times, checks and finds."""

    def __init__(
        self,
        backend: Backend,
        parameters: Mapping[str, Any],
        rounds: int = 1,
        budget: float = math.inf,
        counted: Collection[str] = (),
        fewest: int = 0,
        repetitions: int = 0,
        turns: Turns = ALONE,
    ):
        """Start the clock.

        If fewer than `fewest` rounds fit the budget, `run` raises TooSlowError.
        """
        self.backend = backend
        self._counted = frozenset(map(without_numbers, counted))
        self.repetitions = repetitions
        """How many of each `counted` case, and in other processes, are recorded at least."""
        self._fewest = fewest
        self.devices: Sequence[Device] = backend.devices
        self.parameters = dict(parameters)
        """What the result says that the program ran with. It may add values that it chose."""
        self.rounds, self.budget = rounds, budget
        self.cases: dict[str, Case] = {}
        """What was timed so far."""
        self.figures: dict[str, Interval] = {}
        """What the program found by itself."""
        self.errors: dict[str, float] = {}
        """By what was compared with NumPy: the largest difference, as a share of the largest
        element.
        """
        self.checks: dict[str, float] = {}
        """Further checks of a result."""
        self.problems: list[Note] = []
        self.notes: list[Note] = []
        self.described: dict[str, Any] = {}
        """Further fields of the result: `data`, `tasks`, `series`."""
        self.takes: dict[str, Callable[[], Timing]] = {}
        """What repeats the cases that are counted; it keeps all arrays that they work on."""
        self.launches: dict[str, Callable[[], Any]] = {}
        """What launches the work of those cases."""
        self.counts: dict[str, Counted] = {}
        """What was counted, in recorded repetitions and by the program."""
        self.uncounted: list[Note] = []
        """What was not counted, and why."""
        self.faster_if_recorded: set[str] = set()
        """The counts of cases that were much faster whenever they were recorded."""
        self.points: defaultdict[str, dict[float, float]] = defaultdict(dict)
        """The medians of curves, by label and point."""
        self._pending: list[Timed] = []
        self._turns, self._started = turns, turns.clock()

    def normal(self, size: int, device: Device, seed: int = 0) -> Array:
        """Load a size × size matrix of standard normal float32.

        NumPy draws it, so that all frameworks get the same.
        """
        drawn = np.random.default_rng(seed).standard_normal((size, size), dtype=np.float32)
        return self.backend.asarray(drawn, device)

    def refuse_single_device(self, experiment: str, what_it_does: str) -> None:
        """Raise RequestError if there is one device only."""
        if len(self.devices) < 2:
            raise RequestError(
                f"the experiment {experiment!r} {what_it_does}: it needs at least 2 devices "
                "(--devices 2)"
            )

    def left(self, share: float = 1.0) -> float:
        """Return the seconds that are left until a share of the budget is spent.

        Compiling is not counted.
        """
        return share * self.budget - (self._turns.clock() - self._started)

    def settle(self) -> float:
        """Read a number that each device computes after all that was launched; return the seconds.

        An honest engine has nothing left to do after `waitall`, so this takes no time worth naming.
        An engine whose `waitall` returns early does here what it left, and within the budget.
        """
        started = perf_counter()
        for index, device in enumerate(self.devices):
            neighbour = self.devices[index - 1]
            element = self.backend.asarray(np.ones((1, 1), dtype=np.float32), device)
            computed = self.backend.launch(_doubled, element)
            self.backend.to_numpy(self.backend.copy_to(computed, neighbour))
        return perf_counter() - started

    def time(
        self,
        name: str,
        *works: Work,
        parts: Iterable[str] = (),
        take: Callable[[], Timing] | None = None,
        until: Callable[[list[Any]], object] | None = None,
        before: Callable[[], object] | None = None,
        bare: Sequence[Work] | None = None,
        hides: str = "",
        repeats: int = 1,
        curve: str | None = None,
        at: float = math.nan,
    ) -> None:
        """Register a case: works that are launched one after the other, and waited for together.

        Devices are idle before. It contains the work of the cases `parts`, and so cannot be faster
        than any of them. `before` is called before each timing and not timed; `take` times by
        itself; `until` waits for what the launches gave instead of for all. The case's bare time is
        that of the slowest of the works `bare` as one unit, of all works unless they are given, and
        its overhead is that of the calls of all of them. Of its part `hides`, a transfer, that is
        counted which the other parts do not hide. If doing it once is too short to be timed, the
        works do it `repeats` times, and the case is of once. It is the point `at` of a curve, if it
        is of one.
        """

        def launch() -> list[object]:
            return [work.launch() for work in works]

        def timing(read: bool = False) -> Timing:
            if before is not None:
                before()
            timed = take() if take is not None else measure(self.backend, launch, until, read)
            dispatched, done = timed
            return dispatched / repeats, done / repeats

        components = tuple(works if bare is None else bare)
        self._pending.append(
            Timed(
                name,
                launch,
                timing,
                partial(timing, read=True),
                repeats,
                tuple(parts),
                components,
                hides,
                curve,
                at,
            )
        )

    def is_counted(self, case: str) -> bool:
        """Return whether anything is counted of a case, or of one that differs in numbers only."""
        return without_numbers(case) in self._counted

    def count_as(
        self,
        case: str,
        launch: Callable[[], Any],
        until: Callable[[Any], object] | None = None,
    ) -> None:
        """Let what is counted of a case be another launch than the one that is timed in it.

        It ends when all is done, or when `until` has returned for what was launched.
        """
        self.takes[case] = partial(measure, self.backend, launch, until, read=True)
        self.launches[case] = launch

    def run(self, share: float = TIMED_SHARE, rounds: int | None = None) -> Mapping[str, Case]:
        """Time all registered cases in turn, and their units, until a share of the budget is spent.

        If `rounds` are given, there are as many, whatever they take.
        """
        pending, self._pending = self._pending, []
        if not pending:
            return self.cases
        launches = labelled(pending)
        takes = {case.name: case.take for case in pending}
        for case in pending:
            if self.is_counted(case.name):
                self.takes.setdefault(case.name, case.counted_take)
                self.launches.setdefault(case.name, case.launch)
        # Units and calls stand among the cases, so that a drift of the machine affects all alike.
        for launch, label in launches.items():
            takes[label] = partial(measure, self.backend, launch)
        budget = self.left(share) if rounds is None else math.inf
        # Nothing smaller would fit a budget that is spent.
        fewest = self._fewest if 0 < budget < math.inf else 0
        timed_cases = interleave(
            takes,
            rounds or self.rounds,
            budget=budget,
            fewest=fewest,
            settle=self.settle,
            turns=self._turns,
        )
        timed_by_name = {case.name: case for case in timed_cases}
        seconds_of = {
            launch: np.asarray(timed_by_name[label].seconds) for launch, label in launches.items()
        }
        for case in pending:
            timed = replace(timed_by_name[case.name], repeats=case.repeats, parts=case.parts)
            if grouped(self.backend) is not None:
                # The other ranks of a job on this host would be taken for strangers.
                timed = replace(timed, watch=None)
            self.cases[case.name] = replace(
                timed, **account_of(case, timed, seconds_of, self.cases)
            )
            if case.curve is not None:
                self.points[case.curve][case.at] = timed.median
        return self.cases

    def check(self, what: str, found: Iterable[Array], expected: Iterable[np.ndarray]) -> None:
        """Compare values of the backend with NumPy's; a large difference invalidates the result."""
        tell(f"checking the {what}", 0.0)
        largest = self.errors.get(what, 0.0)
        for value, right in zip(found, expected, strict=True):
            on_host = value if isinstance(value, np.ndarray) else self.backend.to_numpy(value)
            largest = largest_of([largest, relative_error(np.asarray(on_host), right)])
        self.errors[what] = largest

    def elsewhere(self, experiment: str, options: Options) -> Result:
        """Run an experiment in a fresh process of this backend.

        It is on one CPU device unless the options say otherwise.
        """
        usual = {
            "backend": self.backend.name,
            "engine": self.backend.engine,
            "variant": self.backend.variants,
            "devices": 1,
            "device_kind": "cpu",
        }
        return measure_elsewhere(experiment, {**usual, **options})

    def add_elsewhere(
        self,
        what: str,
        experiment: str,
        options: Options,
        named: Callable[..., str],
        share: float,
        processes: int = 1,
    ) -> None:
        """Run an experiment in a fresh process, and keep its cases, counts and error.

        `named` returns the names under which the cases are kept, `what` is that of the error. It is
        the first of `processes` that end when a share of the budget is spent.
        """
        budget = max(LEAST_BUDGET, (1 - STARTING) * self.left(share) / processes)
        usual = {"rounds": self.rounds, "budget": budget, "count": self.repetitions}
        result = self.elsewhere(experiment, {**usual, **options})
        self.errors[what] = result.checks["max_relative_error"]
        self.counts |= result.counts
        for case in result.cases:
            name = named(case.name)
            self.cases[name] = replace(case, name=name)

    def count(self, name: str, seen: int, of: int, witness: str) -> None:
        """Keep a count that needs no recorded repetition; nothing is kept of none."""
        if of:
            self.counts[name] = Counted(seen, of, witness, (seen,))

    def found(self, name: str, value: float | Interval | None) -> None:
        """Keep a figure that follows from no times, if there is one.

        A count, which is an int, is exact; another number has no bounds.
        """
        if value is None:
            return
        if isinstance(value, Interval):
            self.figures[name] = value
        elif isinstance(value, int):
            self.figures[name] = Interval(value, value, value)
        else:
            self.figures[name] = Interval(value, -math.inf, math.inf)

    def found_by(
        self, name: str, formula: Formula, *, is_ratio: bool = True, noise: float = MIN_NOISE
    ) -> Interval | None:
        """Keep and return a figure over the cases' times, by a formula that only the program knows.

        Nothing is kept if a case of it was not timed. With more noise than usual they are of
        several processes.
        """
        interval = interval_of(formula, self.cases, is_ratio=is_ratio, noise=noise)
        self.found(name, interval)
        return interval
