"""What the numbers of the `partitioning` experiment mean, in sentences that follow from them."""

from collections.abc import Mapping, Sequence

from backends import Backend
from parallel_core.experiments.changes import LESS_NOISE, more_cores, with_queue
from parallel_core.measurement.confidence_intervals import decide, with_bounds
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import differ_beyond_noise, times_as_long
from parallel_core.system.formatting import figure, listed

__all__ = [
    "about_bytes",
    "about_crossings",
    "about_data_parallelism",
    "about_micro_batches",
    "about_width",
    "what_would_change",
]


def about_width(width: int, cases: Mapping[str, Case], undivided: str) -> str:
    """Say which ways to divide a network of this width were the fastest, if any was faster than not dividing it."""
    whole = cases[undivided]
    divided = sorted((name for name in cases if name != undivided), key=lambda name: cases[name].median)
    best = cases[divided[0]]
    speedup = times_as_long(whole, best)
    gain = f"{with_bounds(speedup)} × as fast as {undivided}, {figure(1e3 * best.median)} ms a step"
    match decide(speedup, 1.0):
        case None:
            return f"At width {width} no division is shown to be faster than {undivided}: the best was {gain}."
        case 0:
            return f"At width {width} {undivided} was faster than every division: the best, {divided[0]}, was {gain}."
    equal = [name for name in divided if name == divided[0] or not differ_beyond_noise(best, cases[name])]
    if len(equal) > 1:
        return f"At width {width} {listed(equal)} were the fastest, and no difference between them is shown: {gain}."
    return f"At width {width} {equal[0]} was the fastest: {gain}."


def about_data_parallelism(divided_batch: Case, other: Case, width: int) -> str:
    """Hold data parallelism against the fastest of the other divisions."""
    ratio = times_as_long(other, divided_batch)
    meanings = {0: "it lost", 1: "it won", None: "no difference is shown"}
    return (
        f"At width {width} data parallelism was {with_bounds(ratio)} × as fast as {other.name}, the fastest of the "
        f"other divisions: {meanings[decide(ratio, 1.0)]}."
    )


def about_bytes(moved: Mapping[int, Mapping[str, int]], names: Sequence[str]) -> str:
    """Order some divisions by the bytes that they moved between devices, for the narrowest and the widest network."""
    sentences = []
    for width in sorted({min(moved), max(moved)}):
        by_name = moved[width]
        figures = [f"{name} {figure(by_name[name] / 1e6)} MB" for name in sorted(names, key=by_name.__getitem__)]
        sentences.append(f"Least first, a step at width {width} moved between devices: {listed(figures)}.")
    return " ".join(sentences)


def about_crossings(crossings: Mapping[str, int]) -> str:
    """Say how often a device waits for another one in a step."""
    ordered = sorted(crossings, key=crossings.__getitem__)
    waits = listed([f"{name} {crossings[name]} ×" for name in ordered])
    return f"How often a device waits for another one in a step: {waits}."


def what_would_change(backend: Backend, undivided: Case, divided_batch: Case, batch: int, width: int) -> str:
    """Say what would make divisions faster, or another one the best."""
    if backend.engine == "sync":
        return with_queue(backend, "devices should work at the same time, and a division be faster than one device")
    if decide(times_as_long(undivided, divided_batch), 1.0) is None:
        return LESS_NOISE
    return more_cores(backend) or (
        f"A wider network (--wide {4 * width}), with which data parallelism moves more bytes, or a larger batch "
        f"(--batch {4 * batch}), with which the other divisions do."
    )


def about_micro_batches(whole: Case, cut: Case, width: int, micro_batches: int) -> str:
    """Say whether micro-batches let the stages of a partitioned network overlap."""
    ratio = times_as_long(cut, whole)
    compared = (
        f"At width {width} network partitioning took {with_bounds(ratio)} × as long with {micro_batches} micro-batches "
        "as with 1"
    )
    match decide(ratio, 1.0):
        case 0:
            return f"{compared}: cutting the batch paid."
        case 1:
            return f"{compared}: cutting the batch cost more than it gave."
    return f"{compared}: no difference is shown."
