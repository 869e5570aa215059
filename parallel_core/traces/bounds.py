"""The answer to “does my overlap happen?”: how long a step is, what bounds it, what is hidden, and
what to look at first.

Rules decide, as data: the first that holds gives its code and its sentence. A rule is open where an
interval touches two answers, and then nothing is decided, so that the same program gives the same
answer twice, or none. Time outside of computation can go without a faster device, so that is looked
at first where it is worth it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from backends.profiling import HOST_DEVICE
from parallel_core.measurement.confidence_intervals import Interval, decide, with_seconds
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES
from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.system.machine import WORTH_SAYING
from parallel_core.traces.account import (
    LEAST,
    PARTS,
    WORDS,
    Parts,
    StepAccount,
    account_of,
    mean_of,
    over_steps,
    share_in_words,
)
from parallel_core.traces.case_spans import ALL, MAX_SLOWDOWN
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.figures import Reading, figures_of_level, reading
from parallel_core.traces.trust import UNSEEN

MOST = 0.5
"""From this share on an exchange overlaps, or is waiting, or goes from one process to another."""
LITTLE = 0.1
"""Below this share of an exchange nothing overlaps; from MOST on it does."""
MIN_SHARE = 0.1
"""Time outside of computation that is worth looking at first, as a share of a step."""
MAX_OPERATORS = 3
COMPUTE, EXCHANGE, COPY, IDLE = PARTS
OUTSIDE = (EXCHANGE, COPY, IDLE)
UNKNOWN, INCONCLUSIVE = "unknown", "inconclusive"
"""The code of an answer where a device's work was not recorded, or an interval touches two."""
MANY_STEPS = 30
"""Of so many steps that are alike the interval is as short as more steps can make it."""
ON_A_QUIET_MACHINE = "run it on a quiet machine"
MORE_STEPS = "record more --steps"
BOTH = "record more --steps, on a quiet machine"
NEITHER = "more --steps would not decide it"
NO_EXCHANGE = (
    "{} ranks, and no exchange was found: if they train together, they exchange in a way that is "
    "not recorded or not known here (trace --communication names kernels), or not at all, as under "
    "no_sync()."
)


@dataclass(frozen=True)
class Waiting:
    """How several processes waited for each other in the exchanges in which all of them met."""

    share: float
    """Of the time of these exchanges, that beyond the shortest part of each."""
    last_rank: int
    """Who came last most often: in `last` of the exchanges."""
    last: int
    exchanges: int


@dataclass(frozen=True)
class Recording:
    """The steps of one process, or of several that train together: what the rules read."""

    processes: Sequence[CaseFigures]
    steps: Sequence[Parts]
    """The parts of every step, on average over the processes."""
    waiting: Waiting | None = None
    taken: float = 0.0
    """The share of the cores' time that other processes took."""
    core_wait: float = 0.0
    """The share of a step in which the busiest thread waited for a core."""
    slowdown: float = 1.0
    """A step's time under the profiler over its time without."""
    is_without_profiler: bool = False
    """Whether the steps are as long as without the profiler."""

    @cached_property
    def account(self) -> StepAccount:
        """The median step."""
        whole = mean_of([process.parts for process in self.processes])
        return account_of(self.steps, whole, self.taken)

    def reading(self, name: str) -> Reading:
        """Return a figure of the median step, or of the first process, by its name.

        Of devices that were hardly recorded none is known. Raises KeyError if there is none of this
        name.
        """
        is_of_step = name in figures_of_level(StepAccount)
        known = reading(self.account if is_of_step else self.processes[0], name)
        return replace(known, value=None, lacking=UNSEEN) if self.is_unseen else known

    def mean(self, name: str) -> float:
        """Return a figure's mean over the processes; 0 stands for what is not known."""
        return fmean(getattr(process, name) or 0.0 for process in self.processes)

    def sum(self, name: str) -> int | None:
        """Return a count over all processes; None if one does not know it."""
        counts = [getattr(process, name) for process in self.processes]
        return None if None in counts else sum(counts)

    @property
    def is_unseen(self) -> bool:
        """Whether hardly anything was recorded of the devices."""
        queues = [queue for process in self.processes for queue in process.queues]
        nothing_ran = all(queue.device == HOST_DEVICE for queue in queues)
        return nothing_ran or self.mean("unseen_share") >= MOST

    @property
    def is_slowed_down(self) -> bool:
        """Whether a step's parts are the profiler's."""
        return self.slowdown > MAX_SLOWDOWN and not self.is_without_profiler

    @property
    def lacks_cores(self) -> bool:
        """Whether less than half of what looks like computing was computed: in a trace an operator
        computes until it ends, also while its thread has no core.
        """
        if not self.core_wait or not self.is_largest(COMPUTE):
            return False
        return self.core_wait >= self.account.shares[COMPUTE].estimate / 2

    def is_largest(self, part: str) -> bool | None:
        """Return whether a part of a step is larger than each other one; None if that is open."""
        largest = self._largest
        return None if largest is None else part == largest

    def is_largest_outside(self, part: str) -> bool | None:
        """Return the same of the parts in which nothing computes."""
        largest = self._largest_outside
        return None if largest is None else part == largest

    @cached_property
    def _largest(self) -> str | None:
        return largest_part(PARTS, self.steps, self.taken)

    @cached_property
    def _largest_outside(self) -> str | None:
        return largest_part(OUTSIDE, self.steps, self.taken)

    @property
    def has_little_outside(self) -> bool | None:
        """Whether no part in which nothing computes is worth looking at first."""
        largest = over_steps(
            lambda of: np.max([of[part] for part in OUTSIDE], axis=0) / of["seconds"],
            self.steps,
            self.taken,
        )
        return below(largest, MIN_SHARE)

    @property
    def is_waiting_for_a_rank(self) -> bool | None:
        """Whether most of the exchange is waiting for a rank that is late."""
        share = self.waiting.share if self.waiting else 0.0
        left = max(1 - self.taken, 1e-9)
        low = (share * (1 - BETWEEN_PROCESSES) - self.taken) / left
        is_little = below(Interval(share, low, share * (1 + BETWEEN_PROCESSES) / left), MOST)
        return None if is_little is None else not is_little

    @property
    def is_loading(self) -> bool | None:
        """Whether at least half of the waiting is for a DataLoader."""
        return below(self.account.shares[IDLE], 2 * self.mean("loading_share"))


def below(interval: Interval, bound: float) -> bool | None:
    """Return whether a whole interval lies below a bound; None if it holds the bound."""
    place = decide(interval, bound)
    return None if place is None else place == 0


def largest_part(names: Sequence[str], steps: Sequence[Parts], taken: float) -> str | None:
    """Return which of some parts is larger than each other one beyond the noise, if any is.

    `taken` is the share of the cores' time that other processes took.
    """
    largest = max(names, key=lambda part: median(getattr(step, part) for step in steps))
    others = [part for part in names if part != largest]
    apart = over_steps(
        lambda of: (of[largest] - np.max([of[part] for part in others], axis=0)) / of["seconds"],
        steps,
        taken,
        is_difference=True,
    )
    return largest if decide(apart, 0.0) == 1 else None


class Rule(NamedTuple):
    """What is decided of a recording, and what is said then."""

    code: str
    holds: Callable[[Recording], bool | None]
    """None if that is open."""
    sentence: str = ""


BOUNDS = (
    Rule(
        UNKNOWN,
        lambda recording: recording.is_unseen,
        "Neither overlap nor what bounds it is known: {unseen}.",
    ),
    Rule(
        INCONCLUSIVE,
        lambda recording: recording.is_slowed_down,
        "What bounds it is open: it took {slowdown} × its time without the profiler, whose its "
        "parts are.",
    ),
    Rule(
        "cores",
        lambda recording: recording.lacks_cores,
        "Other work bounds it: for {core_wait} of it its busiest thread waited for a core.",
    ),
    Rule(
        "computation",
        lambda recording: recording.is_largest(COMPUTE),
        "Computing bounds it: {shares}{cores}.",
    ),
    Rule(
        "exchange",
        lambda recording: recording.is_largest(EXCHANGE),
        "Exchange that nothing hides bounds it: {shares}.",
    ),
    Rule(
        "copies",
        lambda recording: recording.is_largest(COPY),
        "Copying that nothing hides bounds it: {shares}.",
    ),
    Rule("waiting", lambda recording: recording.is_largest(IDLE), "Waiting bounds it: {shares}."),
)
"""What bounds a step, in the order in which they are tried."""
FIRST = (
    Rule(UNKNOWN, lambda recording: recording.is_unseen),
    Rule(INCONCLUSIVE, lambda recording: recording.is_slowed_down),
    Rule(
        "cores",
        lambda recording: recording.lacks_cores,
        "what else runs on this machine, and at the program's number of threads",
    ),
    Rule(
        "operators",
        lambda recording: recording.has_little_outside,
        "the operators that compute longest, {operators} of their time",
    ),
    Rule(
        "other-process",
        lambda recording: (
            recording.is_largest_outside(EXCHANGE) and recording.mean("between_two_share") >= MOST
        ),
        "the sends and receives: a receive waits until the other process has computed and sent, so "
        "smaller parts of a batch let both compute",
    ),
    Rule(
        "late-rank",
        lambda recording: (
            recording.is_largest_outside(EXCHANGE) and recording.is_waiting_for_a_rank
        ),
        "who is late: most of the exchange is waiting, and rank {last_rank} came last in {last} of "
        "{exchanges}",
    ),
    Rule(
        "exchange-less",
        lambda recording: (
            recording.is_largest_outside(EXCHANGE) and recording.sum("early_exchanges") != 0
        ),
        "the exchange beyond the backward pass",
    ),
    Rule(
        "exchange-earlier",
        lambda recording: recording.is_largest_outside(EXCHANGE),
        "the exchange, which starts after the backward pass",
    ),
    Rule("copies", lambda recording: recording.is_largest_outside(COPY), "the copies"),
    Rule(
        "loading",
        lambda recording: recording.is_loading,
        "the DataLoader, for which the program waits {loading} of a step: num_workers, or less to "
        "decode",
    ),
    Rule(
        "launching",
        lambda recording: recording.mean("launching_share") >= MOST,
        "what the host does between launches, for which the devices wait: Python, reading of data; "
        "CUDA graphs, torch.compile or larger batches launch less often",
    ),
    Rule(
        "waiting",
        lambda recording: recording.is_largest_outside(IDLE),
        "what the devices wait for: reading of data, Python between the operators, other processes",
    ),
)
"""What to look at first, in the order in which they are tried."""
OPEN = Rule(INCONCLUSIVE, lambda _recording: None)


def decided(rules: Sequence[Rule], recording: Recording) -> Rule:
    """Return the first rule that holds; OPEN if one before it is open."""
    for rule in rules:
        holds = rule.holds(recording)
        if holds is None:
            return OPEN
        if holds:
            return rule
    return OPEN


@dataclass(frozen=True)
class Answer:
    """What is said of the recorded steps, what was decided, and the account it was decided by."""

    sentences: tuple[str, ...]
    """How long a step is, what bounds it, what is hidden, and what to look at first."""
    overlap: str
    """`none`, `some`, `overlap`, `no-exchange`, or as the next two."""
    bound: str
    """The code of a rule of BOUNDS."""
    first: str
    """The code of a rule of FIRST."""
    step: StepAccount
    slowdown: float
    """A step's time under the profiler over its time without."""
    recording: Recording = field(repr=False)


def answer_of(recording: Recording) -> Answer:
    """Say what the steps were of one process, or of several that train together."""
    bound, first = decided(BOUNDS, recording), decided(FIRST, recording)
    sentences = [_length(recording)]
    slots = _slots(recording)
    if bound is OPEN:
        shares = shares_in_words(recording.account, is_named=True)
        sentences.append(f"What bounds it is open: {shares}.")
    else:
        sentences.append(bound.sentence.format_map(slots))
    overlap = UNKNOWN
    if bound.code != UNKNOWN:
        overlap, hidden = _hidden(recording)
        sentences.append(hidden)
    if first.sentence:
        sentences.append(f"Look first at {first.sentence.format_map(slots)}.")
    elif first is OPEN:
        rules = BOUNDS if bound is OPEN else FIRST
        todo = what_would_decide(rules, recording)
        sentences.append(f"What to look at first is open: {todo}.")
    return Answer(
        tuple(sentences),
        overlap,
        bound.code,
        first.code,
        recording.account,
        recording.slowdown,
        recording,
    )


def answer_of_trace(cases: Sequence[CaseFigures]) -> Answer | None:
    """Return the answer to a program's trace; None for an experiment's cases, which have their
    own.
    """
    if [case.case for case in cases] != [ALL]:
        return None
    return answer_of(Recording(cases, cases[0].accounted))


def what_would_decide(rules: Sequence[Rule], recording: Recording) -> str:
    """Return what to do, as a clause, where some steps leave open which rule holds.

    More steps make their spread matter less, and a quiet machine what other processes took.
    """
    typical = Parts(*map(median, zip(*map(astuple, recording.steps), strict=True)))
    many_steps = replace(recording, steps=[typical] * MANY_STEPS)
    if recording.taken and decided(rules, replace(recording, taken=0.0)) is not OPEN:
        return ON_A_QUIET_MACHINE
    if decided(rules, many_steps) is not OPEN:
        return MORE_STEPS
    if decided(rules, replace(many_steps, taken=0.0)) is not OPEN:
        return BOTH
    return NEITHER


def _slots(recording: Recording) -> Mapping[str, object]:
    """Return what sentences of rules are filled with, by name."""
    waiting = vars(recording.waiting) if recording.waiting else {}
    process = recording.processes[0]
    computing = [row for row in process.operations if row.kind == "compute"]
    whole = sum(row.seconds for row in computing)
    operators = [f"{row.name} ({percent(row.seconds / whole)})" for row in computing]
    waits = recording.mean("unseen_share") * process.seconds
    unseen = "nothing that ran on a device was recorded"
    if waits:
        unseen = (
            f"the host waits {seconds(waits)} of {seconds(process.seconds)} for a device, on which "
            "hardly anything is recorded"
        )
    cores = ""
    if recording.core_wait >= WORTH_SAYING:
        waited = percent(recording.core_wait)
        cores = f"; for {waited} its busiest thread waited for a core, and computed less"
    return {
        **waiting,
        "unseen": unseen,
        "slowdown": figure(recording.slowdown),
        "core_wait": percent(recording.core_wait),
        "cores": cores,
        "shares": shares_in_words(recording.account),
        "operators": ", ".join(operators[:MAX_OPERATORS]),
        "loading": percent(recording.mean("loading_share")),
    }


def shares_in_words(account: StepAccount, *, is_named: bool = False) -> str:
    """Write the parts of a step, the largest with its interval: `90 % (78–100 %); 7 % exchange
    only`. Its name stands there, too, if `is_named`.
    """
    shares = account.shares
    largest, *others = sorted(shares, key=lambda part: -shares[part].estimate)
    others = [part for part in others if shares[part].estimate >= LEAST]
    name = f" {WORDS[largest]}" if is_named else ""
    in_words = [f"{percent(shares[part].estimate)} {WORDS[part]}" for part in others]
    rest = f"; {listed(in_words)}" if in_words else ""
    return f"{share_in_words(shares[largest])}{name}{rest}"


def _length(recording: Recording) -> str:
    """Say how long a step takes; without steps, how long the recording does."""
    steps, time = recording.processes[0].steps, with_seconds(recording.account.time)
    notes = []
    if steps is not None:
        count = len(steps.steps)
        notes.append(f"{count} step{'' if count == 1 else 's'}")
    if len(recording.processes) > 1:
        notes.append(f"on each of {len(recording.processes)} processes")
    if recording.is_without_profiler:
        notes.append("without the profiler")
    if recording.taken >= WORTH_SAYING:
        notes.append(f"others took {percent(recording.taken)} of the cores")
    subject = "A step" if steps else "The recording, which marks no steps,"
    return ": ".join(filter(None, (f"{subject} takes {time}", ", ".join(notes)))) + "."


def _hidden(recording: Recording) -> tuple[str, str]:
    """Return the code of what is hidden of the exchange, and say it; of copies without one."""
    share = recording.account.hidden_exchange_share
    if share is None:
        return "no-exchange", _without_exchange(recording)
    early = recording.sum("early_exchanges")
    # What begins after the backward pass can be hidden under little.
    codes: tuple[str, ...] = ("none", "some", "overlap")
    edges: tuple[float, ...] = (LITTLE, MOST)
    if early == 0:
        codes, edges = ("none", "overlap"), (MOST,)
    place = None if recording.slowdown > MAX_SLOWDOWN else decide(share, *edges)
    code = INCONCLUSIVE if place is None else codes[place]
    exchanging_steps = max(process.exchanging_steps for process in recording.processes)
    notes = [_a_step(recording, "exchange_seconds")]
    if exchanging_steps < MOST * len(recording.steps):
        notes = [f"in {exchanging_steps} of {len(recording.steps)} steps"]
        early = None
    if recording.waiting and recording.waiting.share >= MOST:
        notes.append(f"{percent(recording.waiting.share)} of it waiting for each other")
    if early is not None:
        whole = recording.sum("exchanges")
        notes.append(f"{early or 'none'} of {whole} launched before the backward pass was over")
        if forward := recording.sum("forward_exchanges"):
            notes.append(f"{forward} before it began")
    hidden = share_in_words(share) if share.estimate >= LEAST else "None"
    return code, f"{hidden} of the exchange is hidden ({', '.join(notes)})."


def _without_exchange(recording: Recording) -> str:
    """Say that no exchange was found: processes that train together may have one."""
    processes, copied = recording.processes, recording.account.hidden_copy_share
    if len(processes) > 1:
        nothing = NO_EXCHANGE.format(len(processes))
    else:
        nothing = "No exchange between devices or processes was recorded."
    copying = fmean(process.parts.copy_seconds for process in processes)
    if copied is None or copying < LEAST * recording.mean("seconds"):
        return nothing
    time = _a_step(recording, "copy_seconds")
    return f"{share_in_words(copied)} of the copying is hidden ({time}). {nothing}"


def _a_step(recording: Recording, part: str) -> str:
    """Write a part of the mean step."""
    whole = fmean(getattr(process.parts, part) for process in recording.processes)
    steps = recording.processes[0].steps
    return f"{seconds(whole / len(steps.steps))} a step" if steps else seconds(whole)
