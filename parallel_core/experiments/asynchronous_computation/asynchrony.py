"""Asynchronous computation: when does control return, what does waiting wait for, and what does it
cost?

Book: Dive into Deep Learning, "Asynchronous Computation".

Prediction: An asynchronous engine queues an operation and returns: Python gets control back after
microseconds, and waiting after each step costs more than waiting once. A synchronous one returns
when the work is done.

Method: Ten matrix multiplications are timed in the backend and in NumPy, until control returns and
until all is done. With ten queued beside another one, that one is waited for, or everything. 1 is
added to a small array ten thousand times, waiting each time or once. A thousand are launched behind
multiplications, and those are counted that were not done when their calls had returned. Matrices
are smaller and increments fewer where the budget of seconds is too short for all that.

Look at: the counts of results, and of increments, that were not there when their calls had
returned; `dispatch_fraction`, the share of the multiplications' time after which control returned;
`async_speedup`, waiting each time over waiting once; `wait_fraction`, waiting for one result over
waiting for all.

Read: `dispatch_fraction` is near 0 for an engine that queues and near 1 for one that does not. Tiny
operations show what a call costs, and not how fast a framework computes.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import backends
from parallel_core.experiments import workloads
from parallel_core.experiments.asynchronous_computation import increments
from parallel_core.experiments.runner.changes import LESS_NOISE, larger, with_queue, without_queue
from parallel_core.experiments.runner.counts import IN_PART, MOSTLY, Count
from parallel_core.experiments.runner.declaration import OF_PRODUCTS, Experiment, Layer
from parallel_core.experiments.runner.formulas import Formula, ratio
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.parameters import Chosen
from parallel_core.experiments.runner.tallies import unfinished_at_return
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.measurement.timing import measure

TEN = "10 products"
COUNT = 10
ONE, ALL = "wait for one result", "waitall"
IN_NUMPY = "10 products in NumPy"
SIZE = Chosen(
    "Side of the matrices. Default: 1000, or what the budget allows.",
    # About 75 multiplications are timed in a round, with its share of those that are checked.
    how=lambda trial: workloads.size_up_to(
        trial, trial.left(0.55) / 75 / workloads.FEWEST_TIMINGS, 1000
    ),
)
STEPS = Chosen("Number of increments. Default: 10000, or what the budget allows.")


def program(
    trial: Trial, size: Annotated[int, SIZE], steps: Annotated[int | None, STEPS] = None
) -> None:
    """Time ten multiplications, ways to wait for them, and increments."""
    numpy = Trial(
        backends.load("numpy", devices=1, threads_per_device=trial.backend.threads_per_device), {}
    )
    launch = partial(workloads.multiplied, numpy, numpy.normal(size, numpy.devices[0]), COUNT)
    trial.time(IN_NUMPY, take=partial(measure, numpy.backend, launch))
    time_ten(trial, size)
    time_waiting(trial, size)
    trial.run(0.75)
    increments.time_increments(trial, steps)


def time_ten(trial: Trial, size: int) -> None:
    """Time the book's ten multiplications, and compare their products with NumPy's."""
    x = trial.normal(size, trial.devices[0])
    ten = workloads.multiplications(trial, x, COUNT)
    trial.time(TEN, ten)
    a = trial.backend.to_numpy(x)
    trial.check("products", ten.launch(), [a @ a] * COUNT)


def time_waiting(trial: Trial, size: int) -> None:
    """Queue ten multiplications on the last device and one on the first; wait for the one, or for
    everything.

    The bare time of a wait is that of the multiplications that it waits for.
    """
    backend = trial.backend
    x = trial.normal(size, trial.devices[0])
    other_x = trial.normal(size, trial.devices[-1])
    one_product = workloads.multiplications(trial, x, 1)
    ten_products = workloads.multiplications(trial, other_x, COUNT)
    everything: tuple[Work, ...] = (one_product, ten_products)
    if len(trial.devices) == 1:
        everything = (workloads.multiplications(trial, x, 1 + COUNT),)

    # A profiler replaces the verbs: they are looked up when they are called.
    def wait_for_one_product(results: Sequence[Any]) -> None:
        _, results_of_one = results
        backend.wait(results_of_one[0])

    trial.time(ONE, ten_products, one_product, until=wait_for_one_product, bare=(one_product,))
    trial.time(ALL, ten_products, one_product, until=lambda _: backend.waitall(), bare=everything)


def dispatch_fraction(case: str) -> Formula:
    """Return the formula of the share of a case's time after which control returned."""
    return lambda times: times.dispatch(case) / times[case]


DISPATCH_FRACTION = Metric(
    "dispatch_fraction",
    dispatch_fraction(TEN),
    title="Python continues after",
    means="the share of the multiplications' time after which control returned: near 0 they were "
    "queued",
    limits=(0.0, 1.0),
    in_percent=True,
    bands=(
        Band(
            LOWEST,
            "queued",
            "The multiplications were queued: control returned after a small share of their time",
            overlap="all",
        ),
        Band(
            0.2,
            "partly",
            "Control returned when part of the multiplications was done",
            overlap="part",
        ),
        Band(
            0.8,
            "not-queued",
            "Nothing was queued, and control returned when the multiplications were done",
            overlap="none",
        ),
    ),
)
UNFINISHED = Count(
    "unfinished_at_return",
    "results were pending when their calls had returned",
    case=TEN,
    tally=unfinished_at_return,
    metric=DISPATCH_FRACTION.name,
    title="Results pending on return",
    bands=(
        Band(
            LOWEST,
            "not-queued",
            "No, nothing was queued: each call returned when its result was there",
            overlap="none",
        ),
        Band(
            IN_PART,
            "partly",
            "In part, the multiplications were queued, and the other calls returned when their "
            "results were there",
            overlap="part",
        ),
        Band(MOSTLY, "queued", "Yes, the multiplications were queued", overlap="all"),
    ),
)
WAIT_FRACTION = Metric(
    "wait_fraction",
    ratio(ONE, ALL),
    ratio=True,
    in_percent=True,
    means="the time to wait for one result over that to wait for everything",
    bands=(
        Band(
            LOWEST,
            "selective",
            "Waiting for one result took only a part of the time of waiting for everything",
        ),
        Band(0.8, "not-selective", "Waiting for one result took as long as waiting for everything"),
    ),
)
WHEN_CONTROL_RETURNS = (
    with_queue("control should return long before the multiplications are done"),
    without_queue(
        DISPATCH_FRACTION.name,
        ("queued",),
        "control should return when the multiplications are done",
    ),
    LESS_NOISE,
    larger("size", "Larger matrices", "multiplying them takes longer, and launching that does not"),
)

EXPERIMENT = Experiment(
    name="async",
    question="Is it faster to wait once, or each time?",
    position=1,
    program=program,
    usual_deviation=0.05,
    case=increments.ONCE,
    contains=("increments",),
    metrics=(
        DISPATCH_FRACTION,
        WAIT_FRACTION,
        Metric("speed_against_numpy", ratio(IN_NUMPY, TEN), ratio=True),
        Metric("async_speedup", ratio(increments.EACH, increments.ONCE), ratio=True),
        Metric("increment_seconds", title="One tiny operation"),
    ),
    counts=(UNFINISHED, increments.UNFINISHED, increments.MOST_UNFINISHED),
    answer=increments.once_or_each_time,
    changes=(LESS_NOISE, *WHEN_CONTROL_RETURNS),
    settings=OF_PRODUCTS,
    queued_case=TEN,
    drawn_case=TEN,
    key_timeline=3,
    layers=(
        Layer("the operation", "compute", increments.ONCE, is_bare=True),
        Layer("+ the framework’s call of each", "host", increments.SINGLE),
        Layer("+ a launch of each", "exchange", increments.ONCE),
        Layer("+ a wait for each", "wait", increments.EACH),
    ),
    options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 320, "steps": 1000}},
)
