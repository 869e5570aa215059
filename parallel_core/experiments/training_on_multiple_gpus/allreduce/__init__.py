"""Allreduce: how fast do all devices get the sum of their vectors, and which algorithm is best?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 3. Its `allreduce` adds
everything up on the first device and copies the sum back; the exercise asks why it is better to
aggregate different parameters on different devices.

Prediction: On the first device n - 1 vectors arrive and n - 1 leave, while the others idle. If each
device adds up its own part, every link and every core works at the same time. For short vectors the
number of steps decides instead.

Method: The book's way (star), three textbook algorithms and the backend's own one sum the same
vectors, from a few KiB to hundreds of MiB. Beside them every device copies its vector once: all
vectors must be read and all sums written, so no allreduce moves fewer bytes than those copies do.
At one size, 16 MiB at most, the sharded sum is timed beside the same with all parts added up on one
device. Additions are counted in vectors of 64 MiB, as far as memory lasts: shorter ones depend on
what else the machine does. Between processes only the framework's own sum is timed, and beside it
one TCP stream that carries a vector once, one way.

Look at: The table of GB/s of each algorithm over the size, with its share of the plain copies' or
the stream's speed; how many additions of a device ran while another device added, which answers
first, and on a busy machine too; `native_speedup_over_star` and `sharded_speedup_over_star`, the
framework's own sum and that in which each device adds up its own part, compared with the book's way
at the largest size; `spread_roots_speedup`, what different parts on different devices gain over the
same parts on one.

Read: Left of the knee latency decides: the algorithm with the fewest steps wins. Right of it
bandwidth does. Devices on a CPU share one memory, so a sum in place can exceed the plain copies,
which touch twice as much of it: a share above 1 exceeds these copies and not the memory. Arrays of
tens of MiB are given back to the system when they are freed: an algorithm that makes new ones waits
for fresh pages then, which one in place does not.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Annotated

from backends.errors import unknown
from parallel_core.experiments.runner.changes import (
    LESS_NOISE,
    MORE_CORES,
    Answered,
    Change,
    with_queue,
)
from parallel_core.experiments.runner.counts import Count
from parallel_core.experiments.runner.declaration import Exercise, Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, DirectAnswer, Metric, speed
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.tallies import computed_beside_another_device
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus.allreduce import (
    bandwidths,
    between_processes,
    sums,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import ALGORITHMS
from parallel_core.measurement.confidence_intervals import with_bounds
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves, labelled
from parallel_core.system.errors import RequestError
from parallel_core.system.formatting import figure, parse_sizes, percent, write_size

ALGORITHM_NAMES = Parameter(
    f"One or more of {', '.join(ALGORITHMS)}. Default: all; between processes native.",
    option="algorithm",
    choices=tuple(ALGORITHMS),
)
VECTOR_SIZES = Parameter(
    "Of each device's vector: a range, in factors of 4, or a list such as 4KiB,1MiB,100MB. "
    "Default: "
    f"{sums.ALL_SIZES}, as far as memory and budget last.",
    metavar="SIZES",
    parse=parse_sizes,
)


def program(
    trial: Trial,
    algorithms: Annotated[Sequence[str] | None, ALGORITHM_NAMES] = None,
    sizes: Annotated[Sequence[int] | None, VECTOR_SIZES] = None,
) -> None:
    """Time the named algorithms on one float32 vector per device, for vectors of each size.

    `sizes` are in bytes, and rounded down to whole elements, at least one. Raises RequestError for
    a single device, an algorithm that is not in `ALGORITHMS`, and sizes that do not fit the memory.
    """
    trial.refuse_single_device("allreduce", "sums over devices")
    names = check_names(ALGORITHMS if algorithms is None else algorithms)
    count = len(trial.devices)
    sizes_to_time = sums.sizes_to_time(sizes, count)
    # A part of the budget is left for the sharded sum on one root, and for the last checks.
    seconds_left = partial(trial.left, 0.7)
    timed_sizes = []
    for size, seconds in sums.swept_sizes(trial, sizes_to_time, sizes is not None, seconds_left):
        sums.check_sums(trial, names, size // sums.ITEM)
        sums.time_size(trial, names, size, seconds)
        timed_sizes.append(size)
    bandwidths.find_bandwidths(trial, timed_sizes, names, bandwidths.PLAIN_COPY, count)
    if "sharded" in names and "native" in names:
        sums.time_roots(trial, timed_sizes, trial.left(0.9))
        if trial.repetitions:
            sums.prepare_count(trial)
    for length in sorted({0, 1, 2, count - 1, count + 1, 1001}):
        sums.check_sums(trial, names, length)


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of algorithms, each once; raises RequestError if one is unknown."""
    without_repeats = tuple(dict.fromkeys(names))
    for name in without_repeats:
        if name not in ALGORITHMS:
            raise RequestError(unknown("algorithm", name, ALGORITHMS))
    return without_repeats


CLEARLY_FASTER = 1.1
"""The fastest algorithm is named if it is so many times as fast as the next one."""
SHARDED = "sharded_speedup_over_star"
ROOTS = "spread_roots_speedup"
OF_STREAM = bandwidths.SHARES[bandwidths.ONE_STREAM]


ADDED = Count(
    "added_beside_another_device",
    "additions of a device ran while another one added up its own part",
    case=sums.COUNTED_CASE,
    tally=computed_beside_another_device,
    at_once=True,
    title="Added at the same time",
    bands=(
        Band(LOWEST, "serial", "No, the devices added up their parts in turn", overlap="none"),
        # On a busy machine one device may wait for a core while the other adds.
        Band(
            0.2,
            "parallel",
            "Yes, the devices added up their own parts at the same time",
            overlap="all",
        ),
    ),
)


def fastest_at_each_size(result: Result) -> DirectAnswer | None:
    """Say up to which size which algorithm is the fastest, and what the framework's own one is."""
    speeds = labelled(result.series, bandwidths.ALGBW)
    speeds.pop(bandwidths.PLAIN_COPY, None)
    if not {"star", "native"} <= speeds.keys():
        return None
    winners = []
    for row, size in enumerate(result.series["bytes"]):
        fastest, second = sorted(speeds, key=lambda name: -speeds[name][row])[:2]
        is_clear = speeds[fastest][row] >= CLEARLY_FASTER * speeds[second][row]
        winners.append((fastest if is_clear else "no clear one", write_size(int(size))))
    parts = []
    for name, same in groupby(winners, key=lambda winner: winner[0]):
        sizes = [size for _, size in same]
        span = sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        parts.append(f"{span} {name}")
    star = speeds["star"][-1]
    because = ""
    roots = result.interval(ROOTS)
    if roots is not None and roots.low > 1 and speeds["sharded"][-1] > star:
        because = (
            " Sharded is faster than star because adding up different parts on different devices "
            f"is {with_bounds(roots)} times as fast as all on one."
        )
    others = [f"{name} ~{figure(speeds[name][-1] / star)}" for name in speeds if name != "star"]
    return DirectAnswer(
        "by-size",
        f"By the size of a vector: {', '.join(parts)}; clear is {percent(CLEARLY_FASTER - 1)} "
        f"faster than the next. At {winners[-1][1]}, as multiples of star's speed: "
        f"{', '.join(others)}; native is the framework's own.{because}",
    )


def is_between_processes(answered: Answered) -> bool:
    """Return whether the sums were between processes, beside a TCP stream."""
    return OF_STREAM in answered.result.metrics


def about_hosts(answered: Answered) -> str:
    """Say what would make sums between processes faster, on several hosts or on one."""
    if answered.result.parameters["hosts"] > 1:
        return "A faster network, or fewer bytes: a smaller network to be trained."
    return "Separate hosts for the processes, whose cores then add up nothing for each other."


EXPERIMENT = Experiment(
    name="allreduce",
    question="Which allreduce is the fastest?",
    position=2,
    exercises=(
        Exercise(
            3,
            "Which allreduce is faster, and why add up different parameters on different devices?",
        ),
    ),
    program=program,
    between_processes=between_processes.program,
    case="native, 4 MiB",
    metrics=(
        Metric(
            bandwidths.ALGBW,
            title="Sum, GB/s",
            means="GB of the longest vector that all devices sum in a second",
            # If algorithms are compared, that is said instead.
            said=lambda result: SHARDED not in result.metrics,
        ),
        speed(
            "native_speedup_over_star",
            "Adding everything up on the first device was faster than the framework's own sum",
            "The framework's own sum took about as long as adding everything up on one device",
            "The framework's own sum was faster than adding everything up on the first device",
        ),
        speed(
            SHARDED,
            "Adding everything up on the first device was faster than each device adding up its "
            "own part",
            "Each device adding up its own part took about as long as adding everything up on the "
            "first one",
            "Each device adding up its own part was faster than adding everything up on the first "
            "one",
        ),
        speed(
            ROOTS,
            "Adding up different parts on different devices cost more than it saved",
            "Adding up different parts on different devices saved little or nothing",
            "Adding up different parts on different devices was faster than all parts on one",
        ),
        speed(
            OF_STREAM,
            "The sum took longer than one TCP stream needs to carry a vector once",
            "The sum took about as long as one TCP stream needs to carry a vector once",
            "The sum was faster than one TCP stream that carries a vector once",
        ),
    ),
    counts=(ADDED,),
    answer=fastest_at_each_size,
    changes=(
        Change(
            lambda answered: not {ROOTS, OF_STREAM} & answered.result.metrics.keys(),
            "All algorithms (without --algorithm): they are compared then, and spread additions "
            "with those on one.",
        ),
        LESS_NOISE,
        Change(is_between_processes, about_hosts),
        with_queue("devices should add up their parts at the same time"),
        MORE_CORES,
        Change(
            lambda _: True,
            lambda answered: (
                f"More devices with a core each (--devices {2 * len(answered.devices)}), of which "
                "one would have more to add up, or vectors of other --sizes."
            ),
        ),
    ),
    curves=Curves(
        over="bytes",
        quantity=bandwidths.ALGBW,
        x_title="each device's vector",
        y_title="GB/s",
        log_y=True,
        dotted=(bandwidths.PLAIN_COPY, bandwidths.ONE_STREAM),
        caption="Size over time, on logarithmic scales. The dotted curve is of every device "
        "copying its "
        "vector once, all at once: whatever sums the vectors must read and write as much. Between "
        "processes it is "
        "of one TCP stream that carries a vector once.",
    ),
    options={
        "full": {"rounds": 3, "sizes": "4KiB..64MiB"},
        "quick": {"rounds": 3, "sizes": "4KiB..4MiB"},
    },
)
