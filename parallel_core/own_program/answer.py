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

import numpy as np

from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES
from parallel_core.own_program.deciding import largest_part, what_would_decide
from parallel_core.own_program.step_figures import StepFigures
from parallel_core.system.formatting import figure, listed, percent, seconds
from parallel_core.system.machine import WORTH_SAYING
from parallel_core.trace_analysis import parts
from parallel_core.trace_analysis.case_spans import MAX_SLOWDOWN
from parallel_core.trace_analysis.parts import (
    PARTS,
    Parts,
    StepAccount,
    over_steps,
    share_in_words,
    share_of,
)
from parallel_core.trace_analysis.ranks import NO_EXCHANGE

THREAD = re.compile(r"thread \d+")
"""What the same queue of several processes differs in."""
MAX_QUEUES = 4
"""So many queues are named, the busiest."""
LITTLE, MOST = 0.1, 0.5
"""Below the first share of an exchange nothing overlaps; from the second on it does, or is
waiting.
"""
LEAST = 0.005
"""Copying that takes a smaller share of a step would be written as 0 %, and is left out."""
MIN_SHARE = 0.1
"""Time outside of computation that is worth looking at first, as a share of a step."""
COMPUTE, EXCHANGE, COPY, IDLE = PARTS
INCONCLUSIVE, UNKNOWN = "inconclusive", "unknown"

OVERLAP = {
    "none": "No overlap",
    "some": "Some overlap",
    "overlap": "Overlap",
    INCONCLUSIVE: "Inconclusive",
}
BOUNDS = {
    COMPUTE: ("computation", "Computation bounds a step: {} of it"),
    EXCHANGE: ("exchange", "Exchange that nothing computes under bounds a step: {} of it"),
    COPY: ("copies", "Copying that nothing computes under bounds a step: {} of it"),
    IDLE: ("waiting", "Waiting bounds a step: in {} of it nothing ran"),
}
"""What bounds a step if one of its parts is the largest: a code, and a sentence."""
CORES = "cores"
"""The code of a bound, and of what to look at first: cores that others held."""
OTHERS = "Other work bounds a step: for {} of it its busiest thread waited for a core"
WAITED_FOR_A_CORE = "; for {} of a step its busiest thread waited for a core, and computed less"
FIRST = {
    CORES: "what else runs on this machine, and at the program's number of threads",
    "operators": "the operators that compute longest, {operators} of their time",
    "late-rank": "who is late: most of the exchange is waiting, and rank {last_rank} came last in "
    "{last} of "
    "{exchanges}",
    "exchange-less": "the exchange beyond the backward pass, {share} of a step, for the reason "
    "below",
    "exchange-earlier": "the exchange, which starts after the backward pass and takes {share} of a "
    "step, for the reason below",
    "other-process": "the sends and receives, {share} of a step: a receive waits until the other "
    "process has computed and sent, so smaller parts of a batch let both compute",
    "copies": "the copies, {share} of a step, for the reason below",
    "loading": "the DataLoader, for which the program waits {loading} of a step: num_workers, or "
    "less to decode",
    "launching": "what the host does between launches, for which the devices wait: Python, reading "
    "of data; CUDA graphs, torch.compile or larger batches launch less often",
    "waiting": "what the devices wait for in {share} of a step: reading of data, Python between "
    "the operators, other "
    "processes",
}
"""What to look at first, by its code: time outside of computation can go without a faster
device.
"""
UNDECIDED_BOUND = "Inconclusive what bounds a step ({})"
UNDECIDED_FIRST = "Inconclusive what to look at first ({}): {}."
NOT_RECORDED = "Nothing that ran on a device was recorded, although the program used one."
SLOWED = (
    "Inconclusive what bounds a step: under the profiler it took {} × its time without: its "
    "parts are the profiler's."
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
class Answer:
    """Three sentences about the recorded steps, what was decided, and the account that it was
    decided by.
    """

    sentences: tuple[str, str, str]
    overlap: str
    """A key of OVERLAP; `no-exchange` without one; UNKNOWN, as the next two, if no work of a
    device was recorded.
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
    account = parts.account_of(steps, taken)
    if not any(process.queues for process in processes):
        sentences = (
            _took(processes, account) + ".",
            NOT_RECORDED,
            "So neither overlap nor what bounds a step is known.",
        )
        return Answer(sentences, UNKNOWN, UNKNOWN, UNKNOWN, account, slowdown)
    overlap, hidden = _hidden(processes, steps, waiting, taken, slowdown)
    if slowdown > MAX_SLOWDOWN and not all(one.is_without_profiler for one in processes):
        sentences = _queues(processes, account), hidden, SLOWED.format(figure(slowdown))
        return Answer(sentences, overlap, INCONCLUSIVE, INCONCLUSIVE, account, slowdown)
    largest = largest_part(PARTS, steps, taken)
    first, share = _first(processes, steps, waiting, account, taken)
    # In a trace an operator computes until it ends, also while its thread has no core.
    waits_for_cores = largest == COMPUTE and core_wait >= account.shares[COMPUTE].estimate / 2
    bound = UNDECIDED_BOUND.format(account.shares_in_words)
    if waits_for_cores:
        bound, first = OTHERS.format(percent(core_wait)), CORES
    elif largest:
        bound = BOUNDS[largest][1].format(share_in_words(account.shares[largest]))
        if largest == COMPUTE and core_wait >= WORTH_SAYING:
            bound += WAITED_FOR_A_CORE.format(percent(core_wait))
    if first in FIRST:
        slots = {
            **(vars(waiting) if waiting else {}),
            "operators": listed(
                [f"{name} ({percent(taken)})" for name, taken in processes[0].operators]
            ),
            "share": share,
            "loading": percent(_loading(processes)),
        }
        bound += f". Look first at {FIRST[first].format_map(slots)}."
    elif largest:

        def knows_first(some_steps: Sequence[Parts], taken: float) -> bool:
            alike = parts.account_of(some_steps, taken)
            return _first(processes, some_steps, waiting, alike, taken)[0] in FIRST

        todo = what_would_decide(knows_first, steps, taken)
        bound += f". {UNDECIDED_FIRST.format(account.shares_in_words, todo)}"
    else:
        todo = what_would_decide(
            lambda some_steps, taken: largest_part(PARTS, some_steps, taken) is not None,
            steps,
            taken,
        )
        bound += f": {todo}."
    code = BOUNDS[largest][0] if largest else INCONCLUSIVE
    if waits_for_cores:
        code = CORES
    return Answer(
        (_queues(processes, account), hidden, bound), overlap, code, first, account, slowdown
    )


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
    early = _early_exchanges(exchanging)
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
    exchange = seconds(fmean(process.exchange_seconds for process in exchanging))
    waited = (
        f", {percent(waiting.share)} of it waiting for each other"
        if waiting and waiting.share >= MOST
        else ""
    )
    lay = (
        f"{share_in_words(interval)} of the exchange ({exchange} in a step{waited}) lay under "
        "computation"
    )
    if early is not None:
        lay += f", {early or 'none'} of {exchanges} launched before the backward pass was over"
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


def _early_exchanges(processes: Sequence[StepFigures]) -> int | None:
    """Return how many exchanges of all processes were early; None if one does not know that."""
    counts = [process.early_exchanges for process in processes]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _first(
    processes: Sequence[StepFigures],
    steps: Sequence[Parts],
    waiting: Waiting | None,
    account: StepAccount,
    taken: float,
) -> tuple[str, str]:
    """Return the code of what to look at first, and the share of a step that it takes, in words."""
    outside = (EXCHANGE, COPY, IDLE)
    most = over_steps(
        lambda of: np.max([of[part] for part in outside], axis=0) / of["seconds"], steps, taken
    )
    worth_it = decide(most, MIN_SHARE)
    if worth_it == 0:
        return "operators", ""
    part = largest_part(outside, steps, taken) if worth_it else None
    if part is None:
        return INCONCLUSIVE, ""
    if part == EXCHANGE and _is_between_two(processes):
        code = "other-process"
    elif part == EXCHANGE:
        code = "exchange-less" if _early_exchanges(processes) != 0 else "exchange-earlier"
        code = _decided(_waited(waiting, taken), MOST, code, "late-rank")
    elif part == COPY:
        code = "copies"
    else:
        # Loading that makes up at least half of the waiting.
        code = _decided(account.shares[IDLE], 2 * _loading(processes), "loading", "waiting")
        if code == "waiting" and fmean(one.launching_share for one in processes) >= MOST:
            code = "launching"
    return code, share_in_words(account.shares[part])


def _decided(interval: Interval, bound: float, below: str, above: str) -> str:
    place = decide(interval, bound)
    return INCONCLUSIVE if place is None else (below, above)[place]


def _waited(waiting: Waiting | None, taken: float) -> Interval:
    share, left = waiting.share if waiting else 0.0, max(1 - taken, 1e-9)
    return Interval(
        share,
        (share * (1 - BETWEEN_PROCESSES) - taken) / left,
        share * (1 + BETWEEN_PROCESSES) / left,
    )


def _is_between_two(processes: Sequence[StepFigures]) -> bool:
    """Return whether most of the exchange is sends and receives, as in a pipeline."""
    return fmean(process.between_two_share for process in processes) >= MOST


def _loading(processes: Sequence[StepFigures]) -> float:
    return fmean(process.loading_share for process in processes)


def _range(shares: Sequence[float]) -> str:
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"
