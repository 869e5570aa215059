"""Limits on the figures of a recording, which a test can hold: `hidden exchange >= 80 %`.

A limit holds, is broken, or is open: its figure's interval contains the limit, or the recording
lacks what the figure needs. So a busy machine makes a test neither pass nor fail by chance.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from backends.errors import unknown
from backends.profiling import SpanKind
from parallel_core.measurement.confidence_intervals import Interval, with_bounds, with_seconds
from parallel_core.measurement.limits import Limit, UnitName, Verdict, parse_limit
from parallel_core.measurement.over_rounds import BETWEEN_PROCESSES
from parallel_core.system.errors import DisturbedError, RequestError
from parallel_core.system.formatting import figure as written_figure
from parallel_core.system.formatting import percent
from parallel_core.traces.account import PARTS, WORDS, mean_of, share_in_words
from parallel_core.traces.bounds.answer import answer_of
from parallel_core.traces.bounds.recording import Recording
from parallel_core.traces.bounds.rules import what_would_decide
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.figures import COUNT, Figure, figures_of_level
from parallel_core.traces.ranks.jobs import of_processes
from parallel_core.traces.ranks.reading import RankTrace, read_ranks
from parallel_core.traces.reasons import Unhidden
from parallel_core.traces.trace_files import files_of
from parallel_core.traces.trust import LACKING, UNSEEN

EARLY = "exchanges launched before the pass is over"
OF_TRANSFERS: Mapping[str, SpanKind] = {
    "hidden exchange": "exchange",
    "hidden copies": "copy",
    EARLY: "exchange",
}
"""The figures of which the reasons of transfers of this kind say why they are low."""
OF_STEP = ("step", *WORDS.values())
"""The figures of which the answer says what to look at first."""
SLOWED = "slowed-down"
"""Why no figure of time is known of steps that the profiler slowed down."""


class Reading(NamedTuple):
    """A figure of a recording: its interval, or the code of what the recording lacks."""

    interval: Interval | None
    code: str = ""


class Named(NamedTuple):
    """A figure that a limit may name."""

    unit: UnitName
    says: str
    read: Callable[[Recording], Reading]


def of_step(recording: Recording) -> Reading:
    """Return how long the median step takes."""
    return Reading(recording.account.time)


def share_of_step(part: str, recording: Recording) -> Reading:
    """Return the share of the median step that one of PARTS takes."""
    return Reading(recording.account.shares[part])


def hidden_exchange(recording: Recording) -> Reading:
    """Return the share of the exchange that lay alongside computation."""
    share = recording.account.hidden_exchange_share
    return Reading(share, "no-exchange" if share is None else "")


def hidden_copies(recording: Recording) -> Reading:
    """Return the share of the copying that lay alongside computation."""
    share = recording.account.hidden_copy_share
    return Reading(share, "no-copies" if share is None else "")


def launched_early(recording: Recording) -> Reading:
    """Return the share of the exchanges that were launched before the backward pass was over."""
    exchanges, early = recording.sum("exchanges"), recording.sum("early_exchanges")
    if not exchanges:
        return Reading(None, "no-exchange")
    if early is None:
        return Reading(None, "no-backward-pass")
    return Reading(exactly(early / exchanges))


def of_processes_in_the_mean(declared: Figure, recording: Recording) -> Reading:
    """Return a declared figure of the recording, over its processes in the mean.

    What is no count has the interval by which runs of one program differ.
    """
    values = [getattr(process, declared.name) for process in recording.processes]
    if None in values:
        return Reading(None, declared.lacking)
    mean = fmean(values)
    if declared.unit == COUNT:
        return Reading(exactly(mean))
    low = mean * (1 - BETWEEN_PROCESSES) * (1 - recording.taken)
    return Reading(Interval(mean, low, mean * (1 + BETWEEN_PROCESSES)))


def exactly(value: float) -> Interval:
    """Return the interval of what is counted, or measured once."""
    return Interval(value, value, value)


def _declared() -> Iterator[tuple[str, Named]]:
    """Yield the figures of a recording that `cases.py` declares, and what each one says."""
    for name, declared in figures_of_level(CaseFigures).items():
        if declared.unit is not None:
            read = partial(of_processes_in_the_mean, declared)
            yield name.replace("_", " "), Named(declared.unit.name, declared.sentence, read)


HELD = dict(
    zip(
        PARTS,
        (
            "something computed",
            "something was exchanged and nothing computed",
            "something was copied, and nothing computed or was exchanged",
            "nothing ran",
        ),
        strict=True,
    )
)
"""When a moment of a step counts for each part."""
FIGURES: Mapping[str, Named] = {
    "step": Named("seconds", "How long the median step takes.", of_step),
    **{
        WORDS[part]: Named(
            "share", f"The share of the median step in which {held}.", partial(share_of_step, part)
        )
        for part, held in HELD.items()
    },
    "hidden exchange": Named(
        "share", "The share of the exchange that lay alongside computation.", hidden_exchange
    ),
    "hidden copies": Named(
        "share", "The share of the copying that lay alongside computation.", hidden_copies
    ),
    EARLY: Named(
        "share",
        "The share of the exchanges that were launched before the backward pass was over: counted, "
        "so a busy machine hardly changes it.",
        launched_early,
    ),
    **dict(_declared()),
}
"""By name, what a limit may ask for: the median step's with intervals, then the recording's."""
UNITS: Mapping[str, UnitName] = {name: named.unit for name, named in FIGURES.items()}


def read_figure(name: str, recording: Recording) -> Reading:
    """Return a figure; unknown if the recording says nothing of it, or the profiler made it."""
    named = FIGURES[name]
    reading = named.read(recording)
    if recording.is_unseen:
        return Reading(None, UNSEEN)
    if named.unit != "count" and recording.is_slowed_down and name != EARLY:
        return Reading(None, SLOWED)
    return reading


@dataclass(frozen=True)
class Unanswered:
    """A figure that a recording does not know, and what is missing, as a code and in words."""

    question: str
    code: str
    missing: str


def cannot_answer(recording: Recording) -> tuple[Unanswered, ...]:
    """Return which figures of the step are unknown, for programs that read ours."""
    readings = {name: read_figure(name, recording) for name in (*OF_STEP, *OF_TRANSFERS)}
    return tuple(
        Unanswered(name, reading.code, LACKING[reading.code])
        for name, reading in readings.items()
        if reading.interval is None
    )


@dataclass(frozen=True)
class Requirement:
    """A limit, what the recording says of it, and a sentence."""

    limit: str
    verdict: Verdict
    interval: Interval | None
    code: str
    """What the recording lacks; empty if the figure is known."""
    sentence: str


def judge(
    limits: Sequence[Limit], recording: Recording, unhidden: Sequence[Unhidden]
) -> tuple[Requirement, ...]:
    """Judge limits by a recording; `unhidden` are its reasons, of which a broken one says the
    first.
    """
    return tuple(_judged(limit, recording, unhidden) for limit in limits)


def _judged(limit: Limit, recording: Recording, unhidden: Sequence[Unhidden]) -> Requirement:
    """Judge one limit."""
    interval, code = read_figure(limit.figure, recording)
    if interval is None:
        sentence = f"{limit.written} is not decided: {LACKING[code]}."
        return Requirement(limit.written, "open", None, code, sentence)
    verdict = limit.judge(interval)
    value = in_words(FIGURES[limit.figure].unit, interval)
    sentence = f"{limit.written} holds: {value}."
    if verdict == "broken":
        reason = _why_broken(limit, recording, unhidden)
        sentence = f"{limit.written} does not hold: it is {value}. {reason}".rstrip()
    elif verdict == "open":
        todo = what_would_decide(partial(_decides, limit), recording)
        sentence = f"{limit.written} is not decided: it is {value}, on both sides; {todo}."
    return Requirement(limit.written, verdict, interval, "", sentence)


def _why_broken(limit: Limit, recording: Recording, unhidden: Sequence[Unhidden]) -> str:
    """Return the first reason why a figure breaks its limit, and what helps; empty if none is
    known.
    """
    kind = OF_TRANSFERS.get(limit.figure)
    if kind is not None and limit.is_least:
        return next((row.in_words for row in unhidden if row.kind == kind), "")
    if limit.figure in OF_STEP:
        return answer_of(recording).look_first
    return ""


def _decides(limit: Limit, recording: Recording) -> bool:
    """Return whether a recording says that a limit holds, or that it is broken."""
    interval, _ = read_figure(limit.figure, recording)
    return interval is not None and limit.judge(interval) != "open"


def in_words(unit: UnitName, interval: Interval) -> str:
    """Write a figure with its interval, or alone if it is exact."""
    if interval.low == interval.high:
        return percent(interval.low) if unit == "share" else written_figure(interval.low)
    if unit == "share":
        is_unknown = interval.low <= 0 and interval.high >= 1
        return f"~{percent(interval.estimate)}" if is_unknown else share_in_words(interval)
    return with_seconds(interval) if unit == "seconds" else with_bounds(interval)


def recording_of(ranks: Mapping[int, RankTrace]) -> Recording:
    """Return the steps of the processes that train together, of which each rank is one."""
    processes = [rank.figures[0] for rank in ranks.values()]
    steps_of_processes = [process.accounted for process in processes]
    steps = [mean_of(alike) for alike in zip(*steps_of_processes, strict=False)]
    return Recording(processes, steps)


@dataclass(frozen=True)
class Trace:
    """A recording, of which tests ask for figures and hold limits."""

    recording: Recording
    unhidden: tuple[Unhidden, ...]

    def __getitem__(self, name: str) -> Reading:
        """Return a figure by the name that `parallel-core trace --figures` lists.

        Raises RequestError if there is none of this name.
        """
        if name not in FIGURES:
            raise RequestError(unknown("figure", name, FIGURES))
        return read_figure(name, self.recording)

    def require(self, *limits: str) -> None:
        """Require limits: `trace.require("hidden exchange >= 80 %")`.

        Raises AssertionError if one is broken, DisturbedError if one is open, and RequestError for
        what is no limit.
        """
        parsed = [parse_limit(limit, UNITS) for limit in limits]
        judged = judge(parsed, self.recording, self.unhidden)
        for requirement in judged:
            if requirement.verdict == "broken":
                raise AssertionError(requirement.sentence)
        for requirement in judged:
            if requirement.verdict == "open":
                raise DisturbedError(requirement.sentence)


def trace(*paths: "str | PathLike[str]") -> Trace:
    """Read the traces of a program, a file or a folder for each rank, and return their figures.

    Raises RequestError, which names the file, for one that cannot be read.
    """
    ranks = read_ranks(files_of(map(Path, paths)))
    recording = recording_of(ranks)
    return Trace(recording, of_processes(recording.processes))
