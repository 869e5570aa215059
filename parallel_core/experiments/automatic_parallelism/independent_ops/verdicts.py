"""What the numbers of the `independent-ops` experiment mean, in sentences that follow from them."""

from collections.abc import Sequence

from backends import Backend
from parallel_core.experiments.changes import LESS_NOISE, with_queue
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import times_as_long

__all__ = ["about_chain", "about_cores", "about_threads", "about_workers", "verdict", "what_would_change"]

IN_ORDER = 1.25
"""Up to this ratio, what was saved is no second operation at the same time."""


def verdict(independent: Case, chain: Case, workers: int) -> str:
    """Say whether independent products ran in order, by so many workers."""
    speedup = times_as_long(chain, independent)
    products = f"independent products by {_counted_workers(workers)}"
    told = f"{with_bounds(speedup)} × as fast as a chain of as many"
    match decide(speedup, IN_ORDER):
        case 0:
            return f"In order: {products} were {told}."
        case 1:
            return f"In parallel: {products} were {told}."
    return f"The noise leaves open whether {products} ran in order: they were {told}."


def about_workers(engine: str, kind: str, speedup: Interval, workers: tuple[int, int]) -> str:
    """Say what the most workers made of the products, against the fewest, or why there is nothing to compare."""
    if engine == "sync":
        return "Nothing is queued on this engine: each product is done before the next is launched, 1 after the other."
    if kind == "gpu":
        return "A GPU takes products from 1 queue in order, and no workers serve it."
    fewest, most = workers
    if fewest == most:
        served = "1 worker" if most == 1 else f"{most} workers"
        return f"The device was served by {served} alone: nothing was compared."
    products = f"By {_counted_workers(most)} instead of {fewest}, independent products"
    told = f"{products} were {with_bounds(speedup)} × as fast"
    match decide(speedup, 1.0, IN_ORDER):
        case 0:
            return f"{told}: more workers were no help."
        case 1:
            return f"{told}: too little to show that any ran at the same time."
        case 2:
            in_full = decide(speedup, (1 + most / fewest) / 2) == 1
            return f"{told}: they ran at the same time{'' if in_full else ', in part or in full'}."
    return f"{told}: the noise leaves open whether any ran at the same time."


def about_chain(speedup: Interval) -> str:
    """Say what the most workers made of a chain, which leaves nothing to do at the same time."""
    told = f"A chain was {with_bounds(speedup)} × as fast by more workers"
    match decide(speedup, 1.0):
        case 0:
            return f"{told}: handing it over costs something, or the machine was slower then."
        case 1:
            return (
                f"{told}, which its order does not allow: the processes ran under unlike conditions, and the figures "
                "that compare them are doubtful by as much."
            )
    return f"{told}: no difference is shown, for each product waits for the one before."


def about_threads(speedup: Interval) -> str:
    """Say what twice the threads made of the products instead."""
    told = f"With twice the threads within each, independent products were {with_bounds(speedup)} × as fast"
    return told + (": no difference is shown." if decide(speedup, 1.0) is None else ".")


def what_would_change(
    backend: Backend, speedup: Interval, counts: Sequence[int], cores: tuple[int, int], size: int
) -> str:
    """Say what would let independent products run at the same time, given the numbers of workers that were compared.

    `cores` are how many the workers or threads need, and how many there are.
    """
    if backend.engine == "sync":
        return with_queue(backend, "a second worker for it (--workers 2) should run two products at the same time")
    if backend.devices[0].kind == "gpu":
        return "Two streams on one GPU (--devices gpu:0/0,gpu:0/1), each with a queue of its own."
    if len(counts) == 1:
        return f"More workers for the queue (--workers-compared 1,{2 * counts[0]})."
    most, (needed, there) = counts[-1], cores
    match decide(speedup, 1.0, IN_ORDER):
        case 2:
            return f"More workers for the queue by default (--workers {most}): products should run at the same time."
        case None:
            return LESS_NOISE
    if needed > there:
        return f"More cores than {there}, which {needed} workers or threads share."
    return f"Larger products (--size {2 * size}), beside which handing them to workers weighs less."


def about_cores(needed: int, cores: int) -> str:
    """Say that workers or threads had no core of their own; empty if they had."""
    if needed <= cores:
        return ""
    return (
        f"{needed} workers or threads share {cores} {'core' if cores == 1 else 'cores'} here: not all can work at once."
    )


def _counted_workers(workers: int) -> str:
    return "one worker" if workers == 1 else f"{workers} workers"
