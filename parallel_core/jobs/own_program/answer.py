"""The answer to “does my overlap happen?” in three sentences: who works, what is hidden, what bounds a step."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from humanize import metric

from parallel_core.jobs.own_program.step_figures import StepFigures
from parallel_core.system.formatting import listed, percent

__all__ = ["Waiting", "answer"]

THREAD = re.compile(r"thread \d+")
"""What the same queue of several processes differs in."""
MAX_QUEUES = 4
"""So many queues are named, the busiest; the others are counted."""
LITTLE, MOST = 0.1, 0.5
"""Below the first share of an exchange nothing overlaps; from the second on it does, or is waiting."""
BOUNDS = {
    "compute_share": "Computation bounds a step: {} of it",
    "exposed_exchange_share": "Exchange that nothing computes under bounds a step: {} of it",
    "exposed_copy_share": "Copying that nothing computes under bounds a step: {} of it",
    "idle_share": "Waiting bounds a step: in {} of it nothing ran",
}
"""The parts of a step, which sum to 1; the largest bounds it."""
MIN_SHARE = 0.1
"""Time outside of computation that is worth looking at first, as a share of a step."""


@dataclass(frozen=True)
class Waiting:
    """How several processes waited for each other in the exchanges in which all of them met."""

    share: float
    """Of the time of these exchanges, that beyond the shortest part of each."""
    last_rank: int
    """Who came last most often: in `last` of the exchanges."""
    last: int
    exchanges: int


def answer(processes: Sequence[StepFigures], waiting: Waiting | None = None) -> tuple[str, str, str]:
    """Return three sentences about the recorded steps of one process, or of several that train together."""
    return _queues(processes), _hidden(processes, waiting), _bound(processes, waiting)


def _queues(processes: Sequence[StepFigures]) -> str:
    shares: dict[str, list[float]] = {}
    for process in processes:
        for queue in process.queues:
            shares.setdefault(f"{queue.device} {THREAD.sub('thread', queue.queue)}", []).append(queue.busy_share)
    busiest = sorted(shares, key=lambda name: -max(shares[name]))
    named = [
        f"{name} {'worked ' if place == 0 else ''}{_range(shares[name])}{' of it' if place == 0 else ''}"
        for place, name in enumerate(busiest[:MAX_QUEUES])
    ]
    if len(busiest) > MAX_QUEUES:
        named.append(f"{len(busiest) - MAX_QUEUES} other queues less")
    steps = sorted({process.steps for process in processes})
    recorded = f"{steps[0]} recorded" if len(steps) == 1 else f"{steps[0]} to {steps[-1]} recorded"
    where = f" on each of {len(processes)} processes" if len(processes) > 1 else ""
    seconds = metric(fmean(process.step_seconds for process in processes), "s")
    return f"A step took {seconds} ({recorded}{where}): {listed(named) or 'no device did anything'}."


def _hidden(processes: Sequence[StepFigures], waiting: Waiting | None) -> str:
    exchanging = [process for process in processes if process.hidden_exchange_share is not None]
    if not exchanging:
        copying = [one.hidden_copy_share for one in processes if one.hidden_copy_share is not None]
        copies = f"; {_range(copying)} of the copying lay under computation" if copying else ""
        alone = "" if len(processes) == 1 else ", so that the processes did not train together in these steps"
        return f"Nothing was exchanged between devices or processes{alone}{copies}."
    hidden = [process.hidden_exchange_share or 0.0 for process in exchanging]
    exchanges, early = (sum(one.exchanges for one in exchanging), sum(one.early_exchanges for one in exchanging))
    seconds = metric(fmean(process.exchange_seconds for process in exchanging), "s")
    waited = f", {percent(waiting.share)} of it waiting for each other" if waiting and waiting.share >= MOST else ""
    lay = f"{_range(hidden)} of the exchange ({seconds} in a step{waited}) lay under computation"
    launches = f"{early} of {exchanges} were launched before the backward pass was over"
    share = fmean(hidden)
    if not early and share < MOST:
        return f"No overlap: {lay}, for none was launched before the backward pass was over."
    if share < LITTLE:
        return f"No overlap: {lay}, although {launches}."
    return f"{'Some overlap' if share < MOST else 'Overlap'}: {lay}; {launches}."


def _bound(processes: Sequence[StepFigures], waiting: Waiting | None) -> str:
    shares = {name: _mean(processes, name) for name in BOUNDS}
    largest = max(BOUNDS, key=lambda name: shares[name])
    first = _first(processes, shares, largest, waiting)
    return f"{BOUNDS[largest].format(percent(shares[largest]))}; look first at {first}."


def _first(processes: Sequence[StepFigures], shares: Mapping[str, float], largest: str, waiting: Waiting | None) -> str:
    """Return what to look at first: time outside of computation can go without a faster device."""
    exchange, copy, idle = (shares[name] for name in ("exposed_exchange_share", "exposed_copy_share", "idle_share"))
    outside = max(exchange, copy, idle)
    if outside < MIN_SHARE and largest == "compute_share":
        named = listed([f"{name} ({percent(share)})" for name, share in processes[0].operators])
        return f"the operators that compute longest, {named} of their time"
    if outside == exchange:
        if waiting and waiting.share >= MOST:
            return (
                f"who is late: most of the exchange is waiting, and rank {waiting.last_rank} came last in "
                f"{waiting.last} of {waiting.exchanges}"
            )
        if any(process.early_exchanges for process in processes):
            return (
                f"the {percent(exchange)} of exchange beyond the backward pass: exchange fewer bytes, or less often, "
                "or end with a smaller bucket"
            )
        return (
            f"the exchange, which starts after the backward pass and takes {percent(exchange)} of a step: let it start "
            "earlier, with smaller buckets (bucket_cap_mb) or DistributedDataParallel"
        )
    if outside == copy:
        return f"the copies, {percent(copy)} of a step: pinned memory, non_blocking=True and a stream of their own"
    loading = _mean(processes, "loading_share")
    if loading >= idle / 2:
        return (
            f"the DataLoader, for which the program waits {percent(loading)} of a step: num_workers, or less to decode"
        )
    others = ", processes that wait for each other" if len(processes) > 1 else ""
    return (
        f"what the devices wait for in {percent(idle)} of a step: reading of data, Python between the operators{others}"
    )


def _mean(processes: Sequence[StepFigures], name: str) -> float:
    return fmean(getattr(process, name) for process in processes)


def _range(shares: Sequence[float]) -> str:
    low, high = percent(min(shares)), percent(max(shares))
    return low if low == high else f"{low} to {high}"
