"""Overlap: can results travel to another device while the next ones are computed?

Book: Dive into Deep Learning, "Automatic Parallelism", computation and communication.

Prediction: A result can be copied as soon as it is there, while the next one is computed, if the copy has a queue and
a core of its own. The book copies to the host, in new memory, on the queue that computes; most of its published runs
took longer with both at once than one after the other, so little is expected of its way.

Method: 50 products are timed, then the copying of their results to another device, then both together. A product takes
far longer than copying its result through the memory that CPU devices share. So each result is copied several times, as
often as makes both parts take about the same time, since overlap can save most then. Copies always go to the same
buffers, because memory that is touched for the first time costs more than the copy. Before copies are timed alone their
sources are read once, since together they are read when they have just been written. The book's way is timed beside
ours. On GPUs both copy to the host.

Look at: `overlap_efficiency`, the time saved as a share of the shorter part, and the same for the book's way.

Read: 0 is none, 1 is all, negative is worse than one after the other. It says much only if both parts take about
the same time. More than 1 means that a part was slower alone than together: copies alone have to be launched first, by
a thread that they share cores with, and together they are launched while products are computed.
"""

from collections.abc import Callable

import numpy as np

from backends import HOST, Array, Backend, Device, Engine
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, found_on
from parallel_core.experiments.automatic_parallelism.copying import (
    Copies,
    calibrate,
    copy_as_units,
    copy_each,
    copy_into,
)
from parallel_core.experiments.changes import LESS_NOISE, with_queue, without_queue
from parallel_core.experiments.experiment import BUDGET, OF_COPIES, Budget, ChosenSize, Experiment, Rounds
from parallel_core.experiments.measuring import (
    Units,
    largest_error,
    refuse_single_device,
    result_of,
    take_in_turn,
    with_parts,
)
from parallel_core.experiments.products import PRODUCTS, normal_matrix, products, products_as_unit
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.measurement.progress import tell
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import Timing, countdown, measure
from parallel_core.measurement.verdicts import over_rounds
from parallel_core.system.formatting import figure
from parallel_core.system.machine_watch import usable_cores

__all__ = ["EXPERIMENT", "about_times", "overlap_efficiency", "run", "verdict", "what_would_change"]

RUN, COPY, TOGETHER = "run", "copy", "run and copy together"
BOOK_COPY, BOOK_TOGETHER = "copy the book's way", "together the book's way"
WELL, BADLY = 0.8, 0.2
"""From this efficiency on the overlap is real, and up to that one it is hardly there."""
UNEQUAL = 2
"""How many times as long as the shorter part the longer one takes when they are unequal."""


def _run_and_copy(backend: Backend, x: Array, device: Device, buffers: list[Array], copies: int) -> list[Array]:
    """Launch a product for every buffer, and copies of each into its buffer when the next product has been launched.

    A copy from a GPU waits for all that was launched there before it: were all products launched first, it would wait
    for all of them.
    """
    made = products(backend, x, 1)
    for index in range(len(buffers)):
        if len(made) < len(buffers):
            made += products(backend, x, 1)
        buffers[index] = copy_into(backend, buffers[index], made[index], device, copies)
    return made


def _copy_the_book_s_way(backend: Backend, results: list[Array], copies: int) -> None:
    """Launch copies of every result to the host, on the queue that computes."""
    for result in results:
        for _ in range(copies):
            backend.launch(backend.ops.to_host, result)


def run(
    backend: Backend,
    size: ChosenSize = None,
    copies: Copies = None,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Time 50 products, the copying of their results to another device, and both together.

    Raises RequestError for a backend with a single CPU device.
    """
    destination = _destination(backend)
    left = countdown(budget)
    size, copies = calibrate(backend, destination, size, copies, left(0.2))
    x = normal_matrix(backend, size, backend.devices[0])
    results = products(backend, x)
    buffers = [backend.copy_to(result, destination) for result in results]

    def both_the_book_s_way() -> list[Array]:
        made = products(backend, x)
        _copy_the_book_s_way(backend, made, copies)
        return made

    def take_copies(launch: Callable[[], object]) -> Timing:
        copy_each(backend, results, destination, buffers, 1)
        return measure(backend, launch)

    # The book's copies are dropped at once, which those of one unit would not be: they have no bare time.
    units = Units(
        {
            RUN: products_as_unit(backend, x),
            COPY: lambda: copy_as_units(backend, results, destination, buffers, copies, size),
        },
        {RUN: (RUN,), COPY: (COPY,), TOGETHER: (RUN, COPY)},
    )
    run_alone, copy_alone, together, book_copy_alone, book_together = take_in_turn(
        backend,
        {
            RUN: lambda: measure(backend, lambda: products(backend, x)),
            COPY: lambda: take_copies(lambda: copy_each(backend, results, destination, buffers, copies)),
            TOGETHER: lambda: measure(backend, lambda: _run_and_copy(backend, x, destination, buffers, copies)),
            BOOK_COPY: lambda: take_copies(lambda: _copy_the_book_s_way(backend, results, copies)),
            BOOK_TOGETHER: lambda: measure(backend, both_the_book_s_way),
        },
        rounds,
        units=units,
        budget=left(0.9),
    ).values()
    together = with_parts(together, (run_alone, copy_alone))
    book_together = with_parts(book_together, (run_alone, book_copy_alone))

    tell("checking the copies", 0.0)
    # The timed buffers held the right values before any timed copy, so the check fills fresh ones.
    checked = [backend.asarray(np.zeros((size, size), dtype=np.float32), destination) for _ in results]
    _run_and_copy(backend, x, destination, checked, copies=1)
    source = backend.to_numpy(x)
    efficiency = overlap_efficiency(run_alone, copy_alone, together)
    book_efficiency = overlap_efficiency(run_alone, book_copy_alone, book_together)
    intervals = {"overlap_efficiency": efficiency, "book_overlap_efficiency": book_efficiency}
    return result_of(
        "overlap",
        backend,
        parameters={"size": size, "products": PRODUCTS, "copies": copies, "rounds": rounds, "budget": budget},
        cases=(run_alone, copy_alone, together, book_copy_alone, book_together),
        metrics={name: interval.estimate for name, interval in intervals.items()},
        intervals=intervals,
        # Together takes as long as the longer part, at the least.
        limits=dict.fromkeys(intervals, 1.0),
        explanation=verdict(efficiency, backend.engine),
        answer=Answer(
            (
                f"With copies the book's way, {_hidden_part(book_efficiency, backend.engine)}.",
                about_times(run_alone, copy_alone, together),
            ),
            what_would_change(backend, efficiency, run_alone, copy_alone, copies),
        ),
        error=largest_error(map(backend.to_numpy, checked), [source @ source] * PRODUCTS),
        compared="copied products",
    )


def _destination(backend: Backend) -> Device:
    """Return the device to which the first one's results are copied; raises RequestError if there is none."""
    if backend.devices[0].kind == "gpu":
        return HOST
    refuse_single_device(backend, "overlap", "copies to another device")
    return backend.devices[1]


def overlap_efficiency(run_alone: Case, copy_alone: Case, together: Case) -> Interval:
    """Return the share of the shorter part that was hidden under the longer one, not clamped."""
    return over_rounds(
        lambda run, copy, both: (run + copy - both) / np.minimum(run, copy),
        run_alone.seconds,
        copy_alone.seconds,
        together.seconds,
    )


def verdict(efficiency: Interval, engine: Engine) -> str:
    """Say how much of the shorter part was hidden under the longer one."""
    opening = "The overlap is real: " if engine == "async" and decide(efficiency, WELL) == 1 else ""
    told = f"{opening}{_hidden_part(efficiency, engine)}"
    return f"{told[0].upper()}{told[1:]}."


def about_times(run_alone: Case, copy_alone: Case, together: Case) -> str:
    """Say how long the parts took, and both together."""
    run, copy, both = (f"{figure(1e3 * case.median)} ms" for case in (run_alone, copy_alone, together))
    return f"Computing alone took {run}, copying alone {copy}, and both together {both}."


def what_would_change(backend: Backend, efficiency: Interval, run_alone: Case, copy_alone: Case, copies: int) -> str:
    """Say what would hide more under the longer part, or nothing any more."""
    shorter, longer = sorted((run_alone.median, copy_alone.median))
    if longer >= UNEQUAL * shorter:
        alike = max(1, round(copies * run_alone.median / copy_alone.median))
        return f"Parts that take equally long (--copies {alike}): little can be saved while they are so unequal."
    if backend.engine == "sync":
        return with_queue(backend, "copies should hide under products")
    if COPY_ON_COMPUTE_QUEUE.name in backend.variants:
        return f"Copies in a queue of their own (without --variant {COPY_ON_COMPUTE_QUEUE.name})."
    if decide(efficiency, -BADLY, BADLY) is None and decide(efficiency, 0.0) is None:
        return LESS_NOISE
    kind = backend.devices[0].kind
    if decide(efficiency, BADLY) == 1:
        if kind in found_on(COPY_ON_COMPUTE_QUEUE.name).get(backend.name, ()):
            return f"Copies that stand behind the products (--variant {COPY_ON_COMPUTE_QUEUE.name}): none should hide."
        return without_queue("nothing should hide")
    if kind == "gpu":
        return f"Fewer or more copies of each result (--copies {2 * copies}), if launching them is what takes the time."
    return (
        f"More cores than {figure(usable_cores())}, or GPUs, which copy by themselves (--device-kind gpu): copying "
        "between CPU devices is work for the cores that compute."
    )


def _hidden_part(efficiency: Interval, engine: Engine) -> str:
    """Say what the interval of an efficiency shows, and no more."""
    told = with_bounds(efficiency)
    if decide(efficiency, 0.0) == 0:
        return f"together took longer than one after the other, with an efficiency of {told}"
    if decide(efficiency, -BADLY, BADLY) == 1:
        return f"nothing overlapped, or hardly anything, with an efficiency of {told}"
    if decide(efficiency, 0.0) == 1 and engine == "sync":
        return f"nothing was queued, so a part was slower alone: together they saved {told} of the shorter one"
    if decide(efficiency, 0.0) == 1:
        return f"{told} of the shorter part was hidden under the longer one"
    return f"the noise leaves open whether anything overlapped, with an efficiency of {told}"


EXPERIMENT = Experiment(
    name="overlap",
    position=2,
    run=run,
    case=TOGETHER,
    metric="overlap_efficiency",
    metric_means="the share of the shorter part that is hidden: 0 is none, 1 is all, below 0 is worse than in turn",
    metric_limits=(-1.0, 1.0),
    settings=OF_COPIES,
    queued_case=RUN,
    calibrated=("size", "copies"),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 500}},
)
