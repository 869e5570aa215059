"""The section's ten matrix multiplications: how long before they are done does control return to Python?

NumPy draws ten normal matrices, so that every framework multiplies the same ones. Drawing and loading them is not
timed.
"""

from functools import partial

import numpy as np

from backends import Array
from parallel_core.experiments.runner.changes import LESS_NOISE, larger, with_queue, without_queue
from parallel_core.experiments.runner.metrics import LOWEST, Band, Formula, Metric
from parallel_core.experiments.runner.trial import Trial, Work

__all__ = [
    "COUNT",
    "DISPATCH_FRACTION",
    "TEN",
    "WHEN_CONTROL_RETURNS",
    "dispatch_fraction",
    "drawn_matrices",
    "ten_multiplications",
    "time_ten",
]

TEN = "10 products"
COUNT = 10


def drawn_matrices(size: int) -> np.ndarray:
    """Draw ten size × size matrices of standard normal float32."""
    return np.random.default_rng(0).standard_normal((COUNT, size, size), dtype=np.float32)


def ten_multiplications(trial: Trial, drawn: np.ndarray) -> Work:
    """Load ten matrices on the first device; multiply each with itself."""
    loaded = [trial.backend.asarray(matrix, trial.devices[0]) for matrix in drawn]
    launch, matmul = trial.backend.launch, trial.backend.ops.matmul

    def multiply(*matrices: Array) -> Array:
        return tuple(matmul(a, a) for a in matrices)

    return Work(
        lambda: [launch(matmul, a, a) for a in loaded], partial(launch, trial.backend.ops.as_unit(multiply), *loaded)
    )


def time_ten(trial: Trial, drawn: np.ndarray) -> None:
    """Time the ten multiplications, and compare their values with NumPy's."""
    ten = ten_multiplications(trial, drawn)
    trial.time(TEN, ten)
    trial.check("products", ten.launch(), (a @ a for a in drawn))


def dispatch_fraction(case: str) -> Formula:
    """Return the share of a case's time after which control returned."""
    return lambda times: times.dispatch(case) / times[case]


DISPATCH_FRACTION = Metric(
    "dispatch_fraction",
    dispatch_fraction(TEN),
    means="the share of the multiplications' time after which control returned: near 0 they were queued",
    limits=(0.0, 1.0),
    in_percent=True,
    bands=(
        Band(
            LOWEST, "queued", "The multiplications were queued, and control returned after a small share of their time"
        ),
        Band(
            0.2, "partly", "Control returned when a part of the multiplications was done, after a share of their time"
        ),
        Band(0.8, "not-queued", "Nothing was queued, and control returned when the multiplications were done"),
    ),
)

WHEN_CONTROL_RETURNS = (
    with_queue("control should return long before the multiplications are done"),
    without_queue(DISPATCH_FRACTION.name, ("queued",), "control should return when the multiplications are done"),
    LESS_NOISE,
    larger("size", "Larger matrices", "multiplying them takes longer, and launching that does not"),
)
