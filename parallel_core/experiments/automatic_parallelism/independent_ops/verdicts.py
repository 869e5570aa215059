"""What the numbers of the `independent-ops` experiment mean, in sentences that follow from them."""

from parallel_core.measurement.checks import MIN_NOISE, differ_beyond_noise
from parallel_core.measurement.result import Case

__all__ = ["about_chain", "about_cores", "about_threads", "about_workers", "verdict"]

IN_ORDER = 1.25
"""Up to this ratio, what was saved is no second operation at the same time."""


def verdict(independent: Case, chain: Case, workers: int) -> str:
    """Say whether independent products ran in order, by so many workers."""
    ratio = chain.median / independent.median
    products = f"by {_counted_workers(workers)}, independent products"
    noise = max(independent.spread, chain.spread, MIN_NOISE)
    if not differ_beyond_noise(independent, chain) and 1 / (1 - min(noise, 0.99)) > IN_ORDER:
        return (
            f"The noise ({noise:.0%}) leaves open whether independent products by {_counted_workers(workers)} ran in "
            f"order ({ratio:.2f} × as fast as a chain of as many)."
        )
    if not differ_beyond_noise(independent, chain):
        return f"In order: {products} took as long as a chain of as many ({ratio:.2f} ×)."
    meaning = "In order" if ratio <= IN_ORDER else "In parallel"
    if ratio < 1:
        return f"{meaning}: {products} took even longer than a chain of as many ({ratio:.2f} × as fast)."
    return f"{meaning}: {products} were {ratio:.2f} × as fast as a chain of as many."


def about_workers(engine: str, kind: str, few: Case, many: Case, workers: tuple[int, int]) -> str:
    """Say what the most workers made of the products, against the fewest, or why there is nothing to compare."""
    if engine == "sync":
        return "Nothing is queued on this engine: each product is done before the next is launched."
    if kind == "gpu":
        return "A GPU takes products from one queue in order, and no workers serve it."
    fewest, most = workers
    if fewest == most:
        return f"The device was served by {_counted_workers(most)} alone: nothing was compared."
    ratio = few.median / many.median
    products = f"By {_counted_workers(most)} instead of {fewest}, independent products"
    if not differ_beyond_noise(few, many):
        return f"{products} took as long ({ratio:.2f} ×): no difference beyond the noise."
    if ratio < 1:
        return f"{products} took longer ({ratio:.2f} × as fast): more workers were no help."
    if ratio <= IN_ORDER:
        return f"{products} were {ratio:.2f} × as fast: too little to show that any ran at the same time."
    how = "at the same time" if ratio > (1 + most / fewest) / 2 else "at the same time in part"
    return f"{products} were {ratio:.2f} × as fast: they ran {how}."


def about_chain(few: Case, many: Case) -> str:
    """Say what the most workers made of a chain, which leaves nothing to do at the same time."""
    ratio = few.median / many.median
    if not differ_beyond_noise(few, many):
        return f"A chain took as long by more workers ({ratio:.2f} ×): each product waits for the one before."
    if ratio < 1:
        return (
            f"A chain took longer by more workers ({ratio:.2f} × as fast): handing it over costs something, or the "
            f"machine was slower then."
        )
    return (
        f"A chain was {ratio:.2f} × as fast by more workers, which its order does not allow: the processes ran under "
        f"unlike conditions, and the figures that compare them are doubtful by as much."
    )


def about_threads(few: Case, threaded: Case) -> str:
    """Say what twice the threads made of the products instead."""
    ratio = few.median / threaded.median
    products = "With twice the threads within each, independent products"
    if not differ_beyond_noise(few, threaded):
        return f"{products} took as long ({ratio:.2f} ×)."
    if ratio < 1:
        return f"{products} took longer ({ratio:.2f} × as fast)."
    return f"{products} were {ratio:.2f} × as fast."


def about_cores(needed: int, cores: int) -> str:
    """Say that workers or threads had no core of their own; empty if they had."""
    if needed <= cores:
        return ""
    return (
        f"{needed} workers or threads share {cores} {'core' if cores == 1 else 'cores'} here: not all can work at once."
    )


def _counted_workers(workers: int) -> str:
    return "one worker" if workers == 1 else f"{workers} workers"
