"""What the numbers of the `allreduce` experiment mean, in sentences that follow from them."""

from collections.abc import Mapping, Sequence

import numpy as np
from humanize import metric

from backends import Backend
from parallel_core.experiments.changes import LESS_NOISE, more_cores, with_queue
from parallel_core.experiments.training_on_multiple_gpus.allreduce.bandwidth import algorithm_bandwidth, bus_bandwidth
from parallel_core.experiments.training_on_multiple_gpus.allreduce.figures import Timed
from parallel_core.experiments.training_on_multiple_gpus.allreduce.parts import (
    ADDING,
    COPYING,
    DIVIDING,
    JOINING,
    NATIVE_SUM,
    ONE_ROOT,
    SPREAD_ROOTS,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.timing import NATIVE, ONE_STREAM, PLAIN_COPY
from parallel_core.measurement.confidence_intervals import decide, with_bounds
from parallel_core.measurement.result import Case
from parallel_core.measurement.verdicts import differ_beyond_noise, over_rounds, times_as_long
from parallel_core.system.formatting import figure, listed, write_size

__all__ = [
    "about_bound",
    "about_exceeded",
    "about_link",
    "about_parts",
    "about_roots",
    "about_sharding",
    "about_size",
    "between_changes",
    "verdict_between",
    "what_would_change",
]


def about_size(size: int, cases: Mapping[str, Case]) -> str:
    """Say which algorithm was the fastest at a size, and how much faster than the star."""
    ordered = sorted((name for name in cases if name != PLAIN_COPY), key=lambda name: cases[name].median)
    best, *others = ordered
    speed = f"{figure(algorithm_bandwidth(size, cases[best].median))} GB/s"
    if not others:
        return f"At {write_size(size)} {best} summed {speed}."
    equal = [best, *(name for name in others if not differ_beyond_noise(cases[best], cases[name]))]
    if len(equal) == len(ordered):
        return (
            f"At {write_size(size)} no algorithm is shown to be slower than {best}, the first by the clock ({speed})."
        )
    faster = times_as_long(cases["star"], cases[best]) if "star" in cases and "star" not in equal else None
    than_star = f", {with_bounds(faster)} × as fast as the star" if faster else ""
    if len(equal) > 1:
        among = "and no difference between them is shown"
        return f"At {write_size(size)} {listed(equal)} were the fastest, {among}: {speed}{than_star}."
    return f"At {write_size(size)} {best} was the fastest: {speed}{than_star}."


def about_bound(timed: Timed, judged: str) -> str:
    """Say how near an algorithm is, with the largest vectors, to the copies that it cannot do without."""
    largest = max(timed)
    copies, mine = timed[largest][PLAIN_COPY], timed[largest][judged]
    times = times_as_long(mine, copies)
    told = f"At {write_size(largest)} {judged} took {with_bounds(times)} × as long as copying every vector once"
    if decide(times, 1.0) == 0:
        return f"{told}, so that is no bound here: a copy touches more memory than a sum in place."
    least = "the least that must be read and written"
    return f"{told}, which is {least}{': no difference is shown' if decide(times, 1.0) is None else ''}."


def about_sharding(timed: Timed) -> tuple[str, ...]:
    """Answer the book's question by the largest vectors; nothing if it was not asked."""
    largest = max(timed)
    cases = timed[largest]
    if not {"star", "sharded"} <= set(cases):
        return ()
    ratio = times_as_long(cases["star"], cases["sharded"])
    compared = f"{with_bounds(ratio)} × as fast as adding all up on the first (star) at {write_size(largest)}"
    meanings = {0: "dividing and joining the vectors cost more than it saved", 1: "sharing out the work paid"}
    place = decide(ratio, 1.0)
    meaning = "no difference is shown" if place is None else meanings[place]
    return (f"Adding up different parts on different devices (sharded) was {compared}: {meaning}.",)


def about_exceeded(timed: Timed) -> tuple[str, ...]:
    """Say which shares of the copies' speed are shown to exceed 1, and what it is that they exceed; else nothing."""
    found: dict[str, list[int]] = {}
    most = 1.0
    for size, cases in timed.items():
        for name, case in cases.items():
            if name != PLAIN_COPY and decide(times_as_long(cases[PLAIN_COPY], case), 1.0) == 1:
                found.setdefault(name, []).append(size)
                most = max(most, cases[PLAIN_COPY].median / case.median)
    if not found:
        return ()
    told = listed([f"{name} at {listed([write_size(size) for size in sizes])}" for name, sizes in found.items()])
    sentence = (
        f"Shares above 1 ({told}; {most:.2f} at most) exceed the speed of plain copies, and not that of the memory: "
        "copies read all vectors and write as many others, so they touch twice as much memory as a sum in place, "
        "and fall out of a cache sooner."
    )
    return (sentence,)


def about_roots(size: int, parts: Mapping[str, Case]) -> str:
    """Say what adding up different parts on different devices gains over adding up the same parts on one."""
    gain = times_as_long(parts[ONE_ROOT], parts[SPREAD_ROOTS])
    compared = (
        f"With part k added up on device k a sum of {write_size(size)} was {with_bounds(gain)} × as fast as with "
        "the same parts all added up on the first device"
    )
    match decide(gain, 1.0):
        case 1:
            return f"{compared}: what one device would do alone, all do at the same time."
        case 0:
            return f"{compared}: spreading the additions costs more waiting here than it saves."
    return f"{compared}: no difference is shown; the additions may not be what takes long, or devices take turns."


def what_would_change(backend: Backend, timed: Timed, parts: Mapping[str, Case]) -> str:
    """Say what would make another algorithm the fastest, or spread additions pay more."""
    if not parts:
        return "All algorithms (without --algorithm): they are compared then, and spread additions with those on one."
    if backend.engine == "sync":
        return with_queue(backend, "devices should add up their parts at the same time")
    if decide(times_as_long(parts[ONE_ROOT], parts[SPREAD_ROOTS]), 1.0) is None:
        return LESS_NOISE
    return more_cores(backend) or (
        f"More devices that have a core each (--devices {2 * len(backend.devices)}), of which one would have more to "
        f"add up alone; and vectors of other sizes than {write_size(min(timed))} to {write_size(max(timed))} (--sizes)."
    )


def about_parts(size: int, parts: Mapping[str, Case]) -> str:
    """Say why sums by parts of their own cost more than the native one, which also adds up parts on all devices."""
    spread, own = parts[SPREAD_ROOTS], parts[NATIVE_SUM]
    ratio = times_as_long(spread, own)
    alone = {name: parts[name].median for name in (DIVIDING, COPYING, ADDING, JOINING)}
    measured = listed([f"{name.removesuffix(' alone')} {metric(seconds, 's')}" for name, seconds in alone.items()])
    told = (
        f"Native adds up different parts on different devices too; sharded took {with_bounds(ratio)} × as long "
        f"({metric(spread.median, 's')} at {write_size(size)}). Its parts, each timed alone, take: {measured}"
    )
    if decide(ratio, 1.0) != 1:
        return f"{told}. That sharded is slower is not shown."
    moving = sum(alone.values()) - alone[ADDING]
    over_sum = over_rounds(
        lambda whole, *each: np.log(whole / sum(each)), spread.seconds, *(parts[name].seconds for name in alone)
    )
    rest = (
        ""
        if decide(over_sum, 0.0) != 1
        else (
            f" The sum takes longer than all of them one after the other ({metric(sum(alone.values()), 's')}): the "
            "rest is waiting, of parts for each other and of devices for parts."
        )
    )
    return (
        f"{told}. All but the adding, {moving / sum(alone.values()):.0%} of their sum, moves what is added: into new "
        "arrays for parts that arrive and for sums that are joined, which a sum in the vectors' own memory need not "
        f"make.{rest}"
    )


def verdict_between(timed: Timed, hosts: Sequence[str], other: int, transport: str) -> str:
    """Say how fast ranks on these hosts summed, and how near that is to one TCP stream from rank 0 to another."""
    where = "one host" if len(set(hosts)) == 1 else f"{len(set(hosts))} hosts"
    first = f"{len(hosts)} processes on {where} summed by {transport}"
    largest, smallest = max(timed), min(timed)
    sentences = [f"{first} {_about_stream(largest, timed[largest], other)}"]
    if smallest != largest:
        sentences.append(f"They summed {_about_stream(smallest, timed[smallest], other)}")
    return " ".join(sentences)


def about_link(timed: Timed, devices: int) -> str:
    """Say what each link carried at the largest size, and what one would if a single device added up all."""
    largest = max(timed)
    bus = bus_bandwidth(algorithm_bandwidth(largest, timed[largest][NATIVE].median), devices)
    return (
        f"If each of {devices} devices adds up another part of {write_size(largest)}, every link carries "
        f"{figure(2 * (devices - 1) / devices)} vectors each way, here at {figure(bus)} GB/s; if one device added up "
        f"all, its link would carry {devices - 1}."
    )


def between_changes(timed: Timed, transport: str, hosts: int) -> str:
    """Say what would make a sum between processes faster, or slower."""
    place = decide(times_as_long(timed[max(timed)][NATIVE], timed[max(timed)][ONE_STREAM]), 1.0)
    if place is None:
        return LESS_NOISE
    if hosts == 1:
        return "Hosts of their own for the processes (launch --hosts), whose cores then add up nothing for each other."
    return f"A faster network (launch --interface) for {transport}, or fewer bytes: a smaller network to be trained."


def _about_stream(size: int, cases: Mapping[str, Case], other: int) -> str:
    """Say how long a sum took, and one TCP stream that carries each vector once, one way."""
    stream, mine = cases[ONE_STREAM], cases[NATIVE]
    times = times_as_long(mine, stream)
    compared = f"{with_bounds(times)} × as long as"
    shown = ": no difference is shown" if decide(times, 1.0) is None else ""
    return (
        f"{write_size(size)} at {figure(algorithm_bandwidth(size, mine.median))} GB/s, which took {compared} one TCP "
        f"stream from rank 0 to rank {other} needs to carry as much{shown}."
    )
