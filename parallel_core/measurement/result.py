"""Results of experiments: frozen values, and the JSON object whose keys are a public interface."""

import json
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, Self

import msgspec

from backends import Backend
from backends.installation.kernels import kernels_of, product_of
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.task_graph import Task
from parallel_core.system.machine import MachineWatch, describe_machine

Timing = tuple[float, float]
"""Seconds until control returned, and until all was done."""

RESULT_SCHEMA = 2
READ_SCHEMAS = (1, 2)
"""The first had no `bands`, and sentences in place of notes."""
LEAST_SHARE = 0.01
"""No case has less of its time, however much other programs seem to have taken."""
NUMBERS = ("metrics", "checks", "series", "metric_intervals")
"""Keys under which null is a number that JSON does not have."""
WHAT_WOULD_CHANGE_IT = "What would change it:"
"""The words before `would_change` wherever an answer is read."""

Positive = Annotated[float, msgspec.Meta(gt=0)]
SomeSeconds = Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]

NoteCode = Literal[
    "above-possible",
    "bound-by-issuing",
    "budget-ended",
    "busy",
    "counts-differ",
    "devices-differ",
    "early-wait",
    "example",
    "faster-than-part",
    "few-rounds",
    "from-checkpoint",
    "impossible-figure",
    "included-epochs",
    "not-measured",
    "order-broken",
    "recorded-otherwise",
    "uncounted",
    "unequal-image",
    "values-differ",
]


@dataclass(frozen=True)
class Note:
    """A sentence of a result beside its answer: a note, a problem or a disturbance."""

    code: NoteCode | None
    """What it says, for programs; null if an older version wrote the result."""
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Answer:
    """Two or three sentences, each with its figure, and what would change them.

    All of them end with a full stop, and claim no more than intervals show. The first one is the
    result's explanation. `would_change` follows from the result if it can, and names an option of
    the program if one would do: `A second worker for each device (--workers 2).`
    """

    sentences: tuple[str, ...]
    would_change: str
    code: str | None = None
    """What a question of time is answered with; null if this run cannot tell, or for another
    question, which `bands` answers.
    """


@dataclass(frozen=True)
class Case:
    """One thing that was timed, several times. All its seconds are of doing it once."""

    name: str
    seconds: SomeSeconds
    """Until all was done."""
    dispatch_seconds: SomeSeconds
    """Until control returned to Python."""
    warmup_seconds: tuple[Annotated[float, msgspec.Meta(ge=0)], ...] = ()
    """Those of the first repetitions, which are not counted."""
    parts: tuple[str, ...] = ()
    """The cases whose work is contained in this one: it cannot be faster than the slowest of
    them.
    """
    bare_seconds: tuple[Positive, ...] = ()
    """What its operations take by themselves; empty if that was not measured.

    They are handed over as one unit, with nothing queued between them, all devices at once in
    thought, so that the slowest part counts.
    """
    operations_seconds: tuple[float, ...] = ()
    """What the operations of the slowest device take in such a unit, less what the unit takes on
    one element each.

    Empty, as `overhead_seconds`, if one of the two cannot be measured.
    """
    overhead_seconds: tuple[float, ...] = ()
    """What its calls take on one element each, those of all devices added: what is left is
    overhead.
    """
    transfer_seconds: tuple[float, ...] = ()
    """What its transfers add to the time of the rest, without their calls; empty for a case that
    hides none.
    """
    repeats: Annotated[int, msgspec.Meta(ge=1)] = 1
    """How often it was done within one timing, if doing it once is too short to be timed."""
    again: Callable[[], Timing] | None = field(default=None, compare=False, repr=False)
    """Repeats the case in the process that timed it, and returns the timing; it is kept within
    `timing.repeatable`.
    """
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = field(default=1.0, compare=False)
    """The share of the case that a repetition under a profiler repeats, and times."""
    watch: MachineWatch | None = field(default=None, compare=False, repr=False)
    """What else the machine did while it was timed."""

    @property
    def median(self) -> float:
        """The median time until all was done, in seconds."""
        return statistics.median(self.seconds)

    @property
    def again_seconds(self) -> float:
        """The seconds that `again` takes with all its repeats, estimated from the median."""
        return self.median * self.share * self.repeats

    @property
    def dispatch_median(self) -> float:
        """The median time until control returned, in seconds."""
        return statistics.median(self.dispatch_seconds)

    @property
    def spread(self) -> float:
        """Half the distance from fastest to slowest repetition, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / 2 / self.median

    @property
    def least_share(self) -> float:
        """The share of its time that it takes at the least when others leave it the cores."""
        if self.watch is None or not self.watch.is_disturbed:
            return 1.0
        # By the system's counters others may seem to have taken all of it, or more.
        return max(1 - self.watch.taken_share, LEAST_SHARE)


@dataclass(frozen=True)
class Counted:
    """A count of what came in an order that only a queue allows, in a recorded repetition."""

    count: Annotated[int, msgspec.Meta(ge=0)]
    of: Annotated[int, msgspec.Meta(gt=0)]
    witness: str
    """What saw it: `torch's profiler`."""
    repetitions: tuple[int, ...]
    """The count of each repetition that was recorded, of which `count` is the middle one."""
    of_each: tuple[int, ...] = ()
    """Of how many each repetition counted; empty if all counted of as many."""
    alongside: float | None = None
    """The share of the copies' time during which something was computed, the median of the
    repetitions; None if nothing is copied. Load stretches it.
    """
    running: float | None = None
    """The share of the operations' time in which threads ran, or were ready to run and had no core:
    in the rest they waited for each other. None if that is not known.
    """


@dataclass(frozen=True)
class Result:
    """One experiment on one backend and engine."""

    experiment: str
    backend: Mapping[str, Any]
    """The framework with its devices, engine and settings."""
    parameters: Mapping[str, Any]
    """What the experiment ran with: sizes, rounds, and so on."""
    cases: tuple[Case, ...]
    metrics: Mapping[str, float]
    """The figures that answer the experiment's question."""
    checks: Mapping[str, float]
    """How far the numbers were from NumPy's, or from each other's where they should be the same."""
    explanation: str
    """What the numbers mean for this framework and engine, in a sentence."""
    answer: Answer | None = None
    """What answers the exercise's question: the explanation, what else belongs to it, and what
    would change it.

    Under the key `answer` are `sentences`, `would_change` and `code`; it is null for an experiment
    that gives none.
    """
    notes: tuple[Note, ...] = ()
    """What else a reader must know."""
    problems: tuple[Note, ...] = ()
    """Why the result is invalid: a check that failed, an impossible time. Empty if it is valid."""
    disturbances: tuple[Note, ...] = ()
    """Those of the problems that a disturbed machine explains: times that cannot be true beside
    numbers that are right.

    If there is one, no time and no metric of the result is to be believed; measured again, they may
    be. Without a problem: why there is no verdict.
    """
    data: str | None = None
    """Where the training data came from; it begins with `synthetic` if they are synthetic."""
    series: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Values over steps or epochs: losses, accuracies."""
    tasks: tuple[Task, ...] = ()
    """The operations that were recorded, if the experiment is about their graph."""
    metric_intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By metric, the bounds between which its true value is believed to lie, if they were found."""
    bands: Mapping[str, str | None] = field(default_factory=dict)
    """By metric or count, the code of what it means; null if the noise leaves several answers, or
    none.
    """
    counts: Mapping[str, Counted] = field(default_factory=dict)
    """What was counted in a recorded repetition, that which answers the question first; empty if
    nothing was.
    """
    environment: Mapping[str, Any] = field(default_factory=describe_machine)
    """The machine and the process: processor, cores, memory, system, versions, time."""
    chosen_by: Mapping[str, str] = field(default_factory=dict)
    """By parameter that the run chose for the machine, the rule that bound it.

    `time`: a device works about as long as usual; `budget`: three rounds fit the budget; `issuing`:
    issuing a copy takes a tenth of its time; `launches`: no more are in flight; `equal-parts`: the
    parts take equally long; `largest`: no larger one is wanted; `rounds`: smaller than first
    chosen, for too few rounds fitted; `comparison`: a comparison gave it to all its processes.
    """
    machine_watch: MachineWatch | None = None
    """What else the machine did while the cases were timed; None if that was not watched."""

    def interval(self, metric: str) -> Interval | None:
        """Return a metric with its interval; None for a metric that was not measured.

        It is unbounded if no interval was found.
        """
        if metric not in self.metrics:
            return None
        low, high = self.metric_intervals.get(metric, (-math.inf, math.inf))
        return Interval(self.metrics[metric], low, high)

    @property
    def is_undisturbed(self) -> bool:
        """Whether other processes left the cores to what was timed; true if nobody watched."""
        return self.machine_watch is None or not self.machine_watch.is_disturbed

    @property
    def has_verdict(self) -> bool:
        """Whether something is answered: it is valid, and few of the cores were taken away."""
        return not self.problems and not self.disturbances

    @property
    def errors(self) -> tuple[Note, ...]:
        """The problems that a disturbed machine does not explain."""
        return tuple(problem for problem in self.problems if problem not in self.disturbances)

    @property
    def is_merely_disturbed(self) -> bool:
        """Whether it is invalid, and a disturbed machine explains all that is wrong."""
        return bool(self.problems) and not self.errors

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` writes; numbers that are not finite become null."""
        cases = []
        for case in self.cases:
            fields = dict(vars(case))
            del fields["again"], fields["watch"]
            cases.append(fields)
        content = {"schema": RESULT_SCHEMA, **vars(self), "cases": cases}
        text = json.dumps(content, default=_as_object)
        # JSON has no NaN; most readers refuse a file that holds one.
        return json.loads(text, parse_constant=lambda _: None)

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned; raises ValueError for anything else."""
        try:
            if read["schema"] not in READ_SCHEMAS:
                raise ValueError(
                    f"a result of schema {read['schema']}; known here: {RESULT_SCHEMA}"
                )
            numbers = {name: _with_nan(read[name]) for name in NUMBERS if name in read}
            notes = {
                key: list(map(_with_code, read[key]))
                for key in ("notes", "problems", "disturbances")
                if key in read
            }
            # Where it is missing, this machine would take its place.
            result = msgspec.convert(
                {**read, **numbers, **notes, "environment": read["environment"]}, cls
            )
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise ValueError(f"not a result: {error}") from error
        cases = [replace(case, watch=result.machine_watch) for case in result.cases]
        return replace(result, cases=tuple(cases))


def _as_object(value: Any) -> dict[str, Any]:
    """Return a mapping, or what has fields, as an object for JSON."""
    return dict(value) if isinstance(value, Mapping) else vars(value)


def describe_backend(backend: Backend, size: int | None = None) -> dict[str, Any]:
    """Return the object under a result's `backend`.

    It measures a multiplication of matrices of this size.
    """
    return {
        "name": backend.name,
        "version": backend.version,
        "engine": backend.engine,
        "devices": [str(device) for device in backend.devices],
        "threads_per_device": backend.threads_per_device,
        "workers_per_device": backend.workers_per_device,
        "cores": [sorted(cores) for cores in backend.cores],
        "scheduler": backend.scheduler,
        "settings": dict(backend.settings),
        "variants": list(backend.variants),
        "kernels": [asdict(kernels) for kernels in kernels_of(backend)],
        "product": asdict(product_of(backend, size)),
    }


def _with_code(read: Any) -> Any:
    """Return a note as it was read, or a sentence as a note without a code."""
    return Note(None, read) if isinstance(read, str) else read


def _with_nan(read: Any) -> Any:
    """Return what was read with NaN for null, which is a number that JSON does not have."""
    if isinstance(read, dict):
        return {name: _with_nan(value) for name, value in read.items()}
    if isinstance(read, list):
        return [_with_nan(value) for value in read]
    return math.nan if read is None else read
