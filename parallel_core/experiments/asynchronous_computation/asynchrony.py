"""Asynchronous computation: when does control return, what does waiting wait for, and what does it cost?

Book: Dive into Deep Learning, "Asynchronous Computation".

Prediction: An asynchronous engine queues an operation and returns: Python gets control back after microseconds, and
waiting after each step costs more than waiting once. A synchronous one returns when the work is done.

Method: Ten matrix multiplications are timed in the backend and in NumPy, until control returns and until all is done.
Ten multiplications are queued beside one, which is waited for, as everything is, and one is waited for by converting
it to NumPy, to a number or to text. 1 is added to a small array ten thousand times, waiting each time or once. Both
times are predicted by a cost model whose parts are measured separately. Last, the memory that a deep queue takes is
measured. Where the budget of seconds is too short for all that, matrices are smaller and increments fewer.

Look at: `dispatch_fraction`, the share of the multiplications' time after which control returned; `async_speedup`,
waiting each time over waiting once; `wait_fraction`, waiting for one result over waiting for all.

Read: `dispatch_fraction` is near 0 for an engine that queues and near 1 for one that does not. Tiny operations show
what a call costs, and not how fast a framework computes. `predicted_once_seconds` may differ from
`measured_once_seconds` by a fifth if Python and the device slow each other down. Memory is measured while results are
kept and while they are dropped: a deep queue costs memory only if dropped results take it too.
"""

from functools import partial
from typing import Annotated

import numpy as np

import backends
from backends import Array
from parallel_core.experiments.asynchronous_computation.increments import EACH, ONCE, t2_over_t1, time_increments
from parallel_core.experiments.asynchronous_computation.ten_multiplications import (
    DISPATCH_FRACTION,
    TEN,
    WHEN_CONTROL_RETURNS,
    drawn_matrices,
    ten_multiplications,
    time_ten,
)
from parallel_core.experiments.asynchronous_computation.waiting import WAIT_FRACTION, time_waiting
from parallel_core.experiments.runner.declaration import OF_PRODUCTS, Experiment
from parallel_core.experiments.runner.metrics import Metric
from parallel_core.experiments.runner.parameters import Chosen
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.works import FEWEST_TIMINGS, largest_size
from parallel_core.measurement.timing import measure
from parallel_core.system.machine import peak_memory_growth

__all__ = ["EXPERIMENT", "program"]

IN_NUMPY = "10 products in NumPy"
SIZE = 1000
MULTIPLICATIONS_OF_A_ROUND = 75
"""About how many are timed in a round, with its share of those that are checked."""
SIDE, DEPTH = 1024, 100
"""The matrix whose increments fill a queue, and how many."""


def _chosen_size(trial: Trial) -> int:
    """Choose the size 1000, or the largest with which the budget allows enough rounds."""
    return largest_size(trial, trial.left(0.55) / MULTIPLICATIONS_OF_A_ROUND / FEWEST_TIMINGS, SIZE)


Size = Annotated[int, Chosen("Side of the matrices. Default: 1000, or what the budget allows.", how=_chosen_size)]
Steps = Annotated[int | None, Chosen("Number of increments. Default: 10000, or what the budget allows.")]


def program(trial: Trial, size: Size, steps: Steps = None) -> None:
    """Measure a deep queue's memory, dispatch against completion, ways of waiting, and increments with their model."""
    x = trial.backend.asarray(np.zeros((SIDE, SIDE), dtype=np.float32), trial.devices[0])
    for what in ("kept", "dropped"):
        for every in (1, 10, 100):
            grown = peak_memory_growth(partial(_fill_queue, trial, x, what == "kept", every))
            if grown is not None:
                trial.found(f"peak_bytes_{what}_waiting_every_{every}", grown)
    drawn = drawn_matrices(size)
    numpy = Trial(backends.load("numpy", devices=1, threads_per_device=trial.backend.threads_per_device), {})
    trial.time(IN_NUMPY, take=partial(measure, numpy.backend, ten_multiplications(numpy, drawn).launch))
    time_ten(trial, drawn)
    time_waiting(trial, size)
    trial.run(0.75)
    time_increments(trial, steps)


def _fill_queue(trial: Trial, x: Array, keep: bool, every: int) -> None:
    """Launch 100 increments, keep the results or drop them, and wait at every `every`-th."""
    kept = []
    for step in range(1, DEPTH + 1):
        y = trial.backend.launch(trial.backend.ops.add, x, 1.0)
        if keep:
            kept.append(y)
        if step % every == 0:
            trial.backend.wait(y)
    trial.backend.waitall()


EXPERIMENT = Experiment(
    name="async",
    position=1,
    program=program,
    case=ONCE,
    metrics=(
        DISPATCH_FRACTION,
        WAIT_FRACTION,
        t2_over_t1("t2_over_t1"),
        Metric("speed_against_numpy", lambda times: times[IN_NUMPY] / times[TEN], ratio=True),
        Metric("async_speedup", lambda times: times[EACH] / times[ONCE], ratio=True),
    ),
    changes=WHEN_CONTROL_RETURNS,
    settings=OF_PRODUCTS,
    queued_case=TEN,
    options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 500, "steps": 2000}},
)
