"""The section's ten matrix multiplications, and what ways of waiting for them wait for."""

from collections.abc import Callable
from functools import partial

import numpy as np

from backends import Array
from parallel_core.experiments.runner.changes import LESS_NOISE, larger, with_queue, without_queue
from parallel_core.experiments.runner.metrics import LOWEST, Band, Formula, Metric, ratio
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.experiments.works import multiplications, multiplied
from parallel_core.measurement.timing import measure

TEN = "10 products"
ONE, ALL = "wait for one result", "waitall"
COUNT = 10
SIDE_OF_MATRICES = "Side of the matrices. Default: 1000, or what the budget allows."


def ten_multiplications(trial: Trial, size: int) -> tuple[Work, np.ndarray]:
    """Draw ten normal float32 matrices, the same for every framework; load them and multiply each with itself."""
    drawn = np.random.default_rng(0).standard_normal((COUNT, size, size), dtype=np.float32)
    backend, matmul = trial.backend, trial.backend.ops.matmul
    loaded = [backend.asarray(matrix, trial.devices[0]) for matrix in drawn]
    unit = backend.ops.as_unit(lambda *matrices: tuple(matmul(a, a) for a in matrices))
    return Work(lambda: [backend.launch(matmul, a, a) for a in loaded], lambda: backend.launch(unit, *loaded)), drawn


def time_ten(trial: Trial, size: int) -> None:
    """Time the section's ten multiplications, without loading their matrices, and compare their values with NumPy's."""
    ten, drawn = ten_multiplications(trial, size)
    trial.time(TEN, ten)
    trial.check("products", ten.launch(), (a @ a for a in drawn))


def time_waiting(trial: Trial, size: int) -> None:
    """Queue ten multiplications on the last device and one on the first; wait for the one, or for all, or convert it.

    The bare time of a wait is that of what it is for. Conversions wait without saying so.
    """
    backend = trial.backend
    x, other = (trial.normal(size, trial.devices[place]) for place in (0, -1))
    one = multiplications(trial, x, 1)
    on_two = (one, multiplications(trial, other, COUNT))
    everything = on_two if len(trial.devices) > 1 else (multiplications(trial, x, 1 + COUNT),)

    def time(name: str, beside: int, wait: Callable[[Array], object], *bare: Work) -> None:
        def launch() -> list[Array]:
            return [*multiplied(trial, other, beside), *multiplied(trial, x)]

        trial.time(name, take=partial(measure, backend, launch, lambda made: wait(made[-1])), bare=bare)

    # A profiler replaces the verbs: they are looked up when they are called.
    time(ONE, COUNT, lambda y: backend.wait(y), one)
    time(ALL, COUNT, lambda _: backend.waitall(), *everything)
    time("product, to NumPy", 0, lambda y: backend.to_numpy(y), one)
    time("product, to a number", 0, lambda y: float(backend.to_numpy(backend.launch(backend.ops.total, y))), one)
    time("product, to text", 0, lambda y: str(backend.to_numpy(y)), one)


def dispatch_fraction(case: str) -> Formula:
    """Return the share of a case's time after which control returned."""
    return lambda times: times.dispatch(case) / times[case]


DISPATCH_FRACTION = Metric(
    "dispatch_fraction",
    dispatch_fraction(TEN),
    title="Control is back after",
    means="the share of the multiplications' time after which control returned: near 0 they were queued",
    limits=(0.0, 1.0),
    in_percent=True,
    bands=(
        Band(LOWEST, "queued", "The multiplications were queued: control returned after a small share of their time"),
        Band(0.2, "partly", "Control returned when part of the multiplications was done, after a share of their time"),
        Band(0.8, "not-queued", "Nothing was queued, and control returned when the multiplications were done"),
    ),
)
WAIT_FRACTION = Metric(
    "wait_fraction",
    ratio(ONE, ALL),
    ratio=True,
    in_percent=True,
    means="the time to wait for one result over that to wait for everything",
    bands=(
        Band(LOWEST, "selective", "Waiting for one result took only a part of the time of waiting for everything"),
        Band(0.8, "not-selective", "Waiting for one result took as long as waiting for everything"),
    ),
)
WHEN_CONTROL_RETURNS = (
    with_queue("control should return long before the multiplications are done"),
    without_queue(DISPATCH_FRACTION.name, ("queued",), "control should return when the multiplications are done"),
    LESS_NOISE,
    larger("size", "Larger matrices", "multiplying them takes longer, and launching that does not"),
)
