"""Allreduce: how fast do all devices get the sum of their vectors, and which algorithm is best?

Book: Dive into Deep Learning, "Training on Multiple GPUs", exercise 3. Its `allreduce` adds everything up on the first
device and copies the sum back; the exercise asks why it is better to aggregate different parameters on different
devices.

Prediction: On the first device n - 1 vectors arrive and n - 1 leave, while the others idle. If each device adds up its
own part, every link and every core works at the same time. For short vectors the number of steps decides instead.

Method: The book's way (star), three textbook algorithms and the backend's own one sum the same vectors, from a few KiB
to hundreds of MiB. Beside them every device copies its vector once: all vectors must be read and all sums written, so
no allreduce moves fewer bytes than those copies do. At one size, 16 MiB at most, the steps of the sharded sum are timed
alone, and the same sum with all parts added up on one device. Between processes the framework's own sum alone is timed,
and beside it one TCP stream that carries a vector once, one way.

Look at: The GB/s of each algorithm over the size, and its share of the plain copies' or the stream's speed;
`spread_roots_speedup`, what different parts on different devices gain over the same parts on one.

Read: Left of the knee latency decides: the algorithm with the fewest steps wins. Right of it bandwidth does. Devices on
a CPU share one memory, so a sum in place can exceed the plain copies, which touch twice as much of it: a share above 1
exceeds these copies and not the memory. Arrays of tens of MiB are given back to the
system when they are freed: an algorithm that makes new ones waits for fresh pages then, which one in place does not.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from backends import Backend
from parallel_core.errors import RequestError
from parallel_core.experiments.measuring import refuse_single_device
from parallel_core.experiments.runner.declaration import BUDGET, Budget, Exercise, Experiment, Parameter, Rounds
from parallel_core.experiments.training_on_multiple_gpus.allreduce import verdicts
from parallel_core.experiments.training_on_multiple_gpus.allreduce.algorithms import ALGORITHMS
from parallel_core.experiments.training_on_multiple_gpus.allreduce.between_processes import run_between_processes
from parallel_core.experiments.training_on_multiple_gpus.allreduce.checks import (
    ALL_SIZES,
    ITEM,
    default_sizes,
    error_of_sums,
    refuse_more_than_memory,
    whole_elements,
)
from parallel_core.experiments.training_on_multiple_gpus.allreduce.figures import result_with
from parallel_core.experiments.training_on_multiple_gpus.allreduce.parts import ONE_ROOT, size_of_parts, time_parts
from parallel_core.experiments.training_on_multiple_gpus.allreduce.sweep import about_budget, sweep
from parallel_core.experiments.training_on_multiple_gpus.allreduce.timing import time_size
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.timing import countdown
from parallel_core.system.formatting import parse_sizes

__all__ = ["EXPERIMENT", "run"]

ALGORITHM_NAMES = Parameter(
    f"One or more of {', '.join(ALGORITHMS)}. Default: all; between processes native.",
    option="algorithm",
    choices=tuple(ALGORITHMS),
)
VECTOR_SIZES = Parameter(
    f"Of each device's vector: a range, in factors of 4, or a list such as 4KiB,1MiB,100MB. Default: {ALL_SIZES}, as "
    "far as memory and budget last.",
    metavar="SIZES",
    parse=parse_sizes,
)
TIMED_SHARE, PARTS_SHARE = 0.7, 0.9
"""Of the budget: until when the sweep may last, and the timing of parts, before the last checks."""


def run(
    backend: Backend,
    algorithms: Annotated[Sequence[str] | None, ALGORITHM_NAMES] = None,
    sizes: Annotated[Sequence[int] | None, VECTOR_SIZES] = None,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time algorithms, by their names in `ALGORITHMS`, on one float32 vector per device, for vectors of each size.

    `sizes` are in bytes, and rounded down to whole elements, of which there is at least one. The metrics are those of
    `native`, or of the last algorithm if it is not asked for, at the largest size. Raises RequestError for a backend
    with a single device, an algorithm that is not known, and sizes for which the memory does not suffice.
    """
    refuse_single_device(backend, "allreduce", "sums over devices")
    names = _known(tuple(ALGORITHMS) if algorithms is None else algorithms)
    whole = whole_elements(default_sizes(len(backend.devices)) if sizes is None else sizes)
    refuse_more_than_memory(whole[-1], len(backend.devices))
    left = countdown(budget)

    def time_and_check(size: int, seconds: float) -> tuple[float, Mapping[str, Case]]:
        error = error_of_sums(backend, names, size // ITEM)
        return error, time_size(backend, names, size, rounds, seconds)

    errors, timed = sweep(whole, sizes is not None, time_and_check, partial(left, TIMED_SHARE))
    count = len(backend.devices)
    size, parts = size_of_parts(timed), {}
    if {"sharded", "native"} <= set(names):
        errors.append(error_of_sums(backend, (ONE_ROOT,), size // ITEM))
        parts = time_parts(backend, size, rounds, left(PARTS_SHARE))
    errors += [error_of_sums(backend, names, length) for length in sorted({0, 1, 2, count - 1, count + 1, 1001})]

    largest = max(timed)
    judged = "native" if "native" in names else names[-1]
    described = {
        "explanation": verdicts.about_size(largest, timed[largest]),
        "answer": Answer(
            (
                *(verdicts.about_size(one, timed[one]) for one in sorted(timed)[:1] if one != largest),
                verdicts.about_roots(size, parts) if parts else verdicts.about_bound(timed, judged),
            ),
            verdicts.what_would_change(backend, timed, parts),
        ),
        "notes": (
            *([verdicts.about_bound(timed, judged)] if parts else []),
            *verdicts.about_sharding(timed),
            *([verdicts.about_parts(size, parts)] if parts else []),
            *verdicts.about_exceeded(timed),
            *about_budget(whole, timed, budget),
        ),
    }
    return result_with(backend, timed, errors, count, judged, rounds, budget, parts, **described)


def _known(algorithms: Sequence[str]) -> tuple[str, ...]:
    """Return the algorithms' names, once each; raises RequestError if one is not known, or none is given."""
    for name in algorithms:
        if name not in ALGORITHMS:
            raise RequestError(f"unknown algorithm {name!r} (known: {', '.join(ALGORITHMS)})")
    if not algorithms:
        raise RequestError(f"no algorithm is given (known: {', '.join(ALGORITHMS)})")
    return tuple(dict.fromkeys(algorithms))


EXPERIMENT = Experiment(
    name="allreduce",
    position=2,
    exercises=(Exercise(3, "Which allreduce is faster, and why add up different parameters on different devices?"),),
    run=run,
    run_between_processes=run_between_processes,
    case="native, 4 MiB",
    metric="algbw_gb_per_s",
    metric_means="GB of the longest vector that all devices sum in a second",
    curves=Curves(
        over="bytes",
        quantity="algbw_gb_per_s",
        x_title="each device's vector",
        y_title="GB/s",
        log_y=True,
        dotted=("plain copy", "one TCP stream"),
        caption="Size over time, on logarithmic scales. The dotted curve is of every device copying its "
        "vector once, all at once: whatever sums the vectors must read and write as much. Between processes it is "
        "of one TCP stream that carries a vector once.",
    ),
    options={"full": {"rounds": 3, "sizes": "4KiB..64MiB"}, "quick": {"rounds": 3, "sizes": "4KiB..4MiB"}},
)
