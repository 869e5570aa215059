"""The answer to “does my overlap happen?” in three sentences: who works, what is hidden, what
bounds a step.

Each says something only if the whole interval over the steps lies in one band, so that the same
program gives the same answer twice, or an inconclusive one.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from statistics import fmean

from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.system.formatting import listed, percent, seconds
from parallel_core.traces.account import (
    Parts,
    StepAccount,
    account_of,
    over_steps,
    share_in_words,
    share_of,
)
from parallel_core.traces.case_spans import MAX_SLOWDOWN
from parallel_core.traces.profile.bounds import (
    MOST,
    Recording,
    Waiting,
    bound_of,
    early_exchanges,
    slowed_down,
)
from parallel_core.traces.profile.deciding import INCONCLUSIVE
from parallel_core.traces.profile.step_figures import StepFigures
from parallel_core.traces.ranks import NO_EXCHANGE

THREAD = re.compile(r"thread \d+")
"""What the same queue of several processes differs in."""
MAX_QUEUES = 4
"""So many queues are named, the busiest."""
LITTLE = 0.1
"""Below this share of an exchange nothing overlaps; from MOST on it does."""
LEAST = 0.005
"""Copying that takes a smaller share of a step would be written as 0 %, and is left out."""
UNKNOWN = "unknown"

OVERLAP = {
    "none": "No overlap",
    "some": "Some overlap",
    "overlap": "Overlap",
    INCONCLUSIVE: "Inconclusive",
}
NOT_RECORDED = "Nothing that ran on a device was recorded, although the program used one."

HARDLY_RECORDED = (
    "Most of the time the host waited for a device on which hardly anything was recorded."
)


@dataclass(frozen=True)
class Answer:
    """Three sentences about the recorded steps, what was decided, and the account that it was
    decided by.
    """

    sentences: tuple[str, str, str]
    overlap: str
    """A key of OVERLAP; `no-exchange` without one; UNKNOWN, as the next two, if no work of a
    device was recorded, or hardly any.
    """
    bound: str
    first: str
    """A key of FIRST; INCONCLUSIVE if an interval touches two answers."""
    step: StepAccount
    slowdown: float
    """A step's time under the profiler over its time without."""


def answer(
    processes: Sequence[StepFigures],
    waiting: Waiting | None = None,
    taken: float = 0.0,
    slowdown: float = 1.0,
    core_wait: float = 0.0,
) -> Answer:
    """Say what the steps were of one process, or of several that train together.

    `taken` is the share of the cores' time that other processes took, `slowdown` a step's time
    under the profiler over its time without, and `core_wait` the share of a step in which the
    busiest thread waited for a core.
    """
    alike = zip(*(process.by_step for process in processes), strict=False)
    steps = [Parts(*map(fmean, zip(*map(astuple, same), strict=True))) for same in alike]
    account = account_of(steps, taken)
    has_queues = any(process.queues for process in processes)
    is_unseen = fmean(process.unseen_share for process in processes) >= MOST
    if is_unseen or not has_queues:
        sentences = (
            _took(processes, account) + ".",
            HARDLY_RECORDED if has_queues else NOT_RECORDED,
            "So neither overlap nor what bounds a step is known.",
        )
        return Answer(sentences, UNKNOWN, UNKNOWN, UNKNOWN, account, slowdown)
    overlap, hidden = _hidden(processes, steps, waiting, taken, slowdown)
    if slowdown > MAX_SLOWDOWN and not all(process.is_without_profiler for process in processes):
        bound = slowed_down(slowdown)
    else:
        bound = bound_of(Recording(processes, steps, waiting, taken), core_wait)
    sentences = _queues(processes, account), hidden, bound.sentence
    return Answer(sentences, overlap, bound.code, bound.first, account, slowdown)


def _queues(processes: Sequence[StepFigures], account: StepAccount) -> str:
    shares: dict[str, list[float]] = defaultdict(list)
    for queue in (queue for process in processes for queue in process.queues):
        shares[f"{queue.device} {THREAD.sub('thread', queue.queue)}"].append(queue.busy_share)
    busiest = sorted(shares, key=lambda name: -max(shares[name]))[:MAX_QUEUES]
    worked = listed([f"{name} {_range(shares[name])}" for name in busiest])
    return f"{_took(processes, account)}; the busiest queues of devices: {worked}."


def _took(processes: Sequence[StepFigures], account: StepAccount) -> str:
    where = f" on each of {len(processes)} processes" if len(processes) > 1 else ""
    recorded = f"{min(process.steps for process in processes)} recorded{where}"
    how = "without the profiler" if processes[0].is_without_profiler else "in the median"
    return f"A step took {account.seconds_in_words} {how} ({recorded})"


def _hidden(
    processes: Sequence[StepFigures],
    steps: Sequence[Parts],
    waiting: Waiting | None,
    taken: float,
    slowdown: float,
) -> tuple[str, str]:
    exchanging = [process for process in processes if process.hidden_exchange_share is not None]
    if not exchanging:
        return "no-exchange", _without_exchange(processes)
    share = fmean(process.hidden_exchange_share or 0.0 for process in exchanging)
    exchanges = sum(process.exchanges for process in exchanging)
    early = early_exchanges(exchanging)
    with_exchange = [step for step in steps if step.exchange_seconds]
    over = Interval(share, 0.0, 1.0)
    if with_exchange:
        over = over_steps(
            share_of("hidden_exchange_seconds", "exchange_seconds"), with_exchange, taken
        )
    # The figure is that of `trace`, over all steps.
    interval = Interval(share, min(share, over.low), max(share, over.high))
    # What begins after the backward pass can be hidden under little.
    codes, edges = (
        (("none", "overlap"), (MOST,))
        if early == 0
        else (("none", "some", "overlap"), (LITTLE, MOST))
    )
    place = None if slowdown > MAX_SLOWDOWN else decide(interval, *edges)
    code = INCONCLUSIVE if place is None else codes[place]
    exchange = f"{seconds(fmean(process.exchange_seconds for process in exchanging))} in a step"
    exchanging_steps = max(process.exchanging_steps for process in exchanging)
    if exchanging_steps < MOST * len(steps):
        recording = _range([process.exchange_share for process in exchanging])
        exchange = f"in {exchanging_steps} of {len(steps)} steps, {recording} of the recording"
        early = None
    waited = (
        f", {percent(waiting.share)} of it waiting for each other"
        if waiting and waiting.share >= MOST
        else ""
    )
    lay = f"{share_in_words(interval)} of the exchange ({exchange}{waited}) lay under computation"
    if early is not None:
        lay += f", {early or 'none'} of {exchanges} launched before the backward pass was over"
        if forward := sum(process.forward_exchanges for process in exchanging):
            lay += f" and {forward} of these before it began"
    return code, f"{OVERLAP[code]}: {lay}."


def _without_exchange(processes: Sequence[StepFigures]) -> str:
    """Say that no exchange was found: processes that train together may have one."""
    if len(processes) > 1:
        none = NO_EXCHANGE.format(len(processes))
        return f"{none.removesuffix('.')}{_copies(processes)}."
    return f"No exchange between devices or processes was recorded{_copies(processes)}."


def _copies(processes: Sequence[StepFigures]) -> str:
    """Say which share of the copying was hidden, and of how much; nothing where it hardly is."""
    copying = [
        process for process in processes if process.copy_seconds >= LEAST * process.step_seconds > 0
    ]
    shares = [one.hidden_copy_share for one in copying if one.hidden_copy_share is not None]
    if not shares:
        return ""
    copied = seconds(fmean(process.copy_seconds for process in copying))
    return f"; {_range(shares)} of the copying ({copied} in a step) lay under computation"


def _range(shares: Sequence[float]) -> str:
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"
