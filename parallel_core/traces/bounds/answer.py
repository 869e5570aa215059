"""The answer to “does my overlap happen?”: how long a step is, what bounds it, what is hidden, and
what to look at first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from parallel_core.measurement.confidence_intervals import decide, with_seconds
from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.system.machine import WORTH_SAYING
from parallel_core.traces.account import (
    LEAST,
    WORDS,
    StepAccount,
    share_in_words,
)
from parallel_core.traces.bounds.recording import MOST, Recording
from parallel_core.traces.bounds.rules import (
    BOUNDS,
    FIRST,
    INCONCLUSIVE,
    OPEN,
    UNKNOWN,
    decided,
    what_would_decide,
)
from parallel_core.traces.case_spans import ALL, MAX_SLOWDOWN
from parallel_core.traces.cases import CaseFigures

LITTLE = 0.1
"""Below this share of an exchange nothing overlaps; from MOST on it does."""
MAX_OPERATORS = 3
NO_EXCHANGE = (
    "{} ranks, and no exchange was found: if they train together, they exchange in a way that is "
    "not recorded or not known here (trace --communication names kernels), or not at all, as under "
    "no_sync()."
)


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
    look_first: str = field(repr=False)
    """The last of the sentences if it says what to look at first; else empty."""


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
    look_first = ""
    if first.sentence:
        look_first = f"Look first at {first.sentence.format_map(slots)}."
    elif first is OPEN:
        rules = BOUNDS if bound is OPEN else FIRST
        todo = what_would_decide(lambda steps: decided(rules, steps) is not OPEN, recording)
        look_first = f"What to look at first is open: {todo}."
    if look_first:
        sentences.append(look_first)
    return Answer(
        tuple(sentences),
        overlap,
        bound.code,
        first.code,
        recording.account,
        recording.slowdown,
        recording,
        look_first,
    )


def answer_of_trace(cases: Sequence[CaseFigures]) -> Answer | None:
    """Return the answer to a program's trace; None for an experiment's cases, which have their
    own.
    """
    if [case.case for case in cases] != [ALL]:
        return None
    return answer_of(Recording(cases, cases[0].accounted))


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
