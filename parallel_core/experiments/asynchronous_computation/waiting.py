"""What each way of waiting waits for.

`wait` asks for one result, `waitall` for everything on every device. Converting a result to NumPy, to a Python number
or to text waits for it too, without saying so.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter

from backends import Array
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.works import multiplications, multiplied
from parallel_core.measurement.timing import Timing

__all__ = ["ALL", "ONE", "WAIT_FRACTION", "time_until", "time_waiting"]

QUEUED = 10
ONE, ALL = "wait for one result", "waitall"

WAIT_FRACTION = Metric(
    "wait_fraction",
    lambda times: times[ONE] / times[ALL],
    ratio=True,
    in_percent=True,
    means="the time to wait for one result over that to wait for everything",
    bands=(
        Band(LOWEST, "selective", "Waiting for one result took only a part of the time of waiting for everything"),
        Band(0.8, "not-selective", "Waiting for one result took as long as waiting for everything"),
    ),
)


def time_until(
    trial: Trial, launch: Callable[[], tuple[Array, object]], wait: Callable[[Array], object]
) -> Callable[[], Timing]:
    """Return what launches on idle devices, waits for the first value in some way, and returns when that ended.

    What else is launched is kept, and done, before the timing is returned.
    """

    def take() -> Timing:
        trial.backend.waitall()
        start = perf_counter()
        awaited, others = launch()
        dispatched = perf_counter()
        wait(awaited)
        done = perf_counter()
        trial.backend.waitall()
        del others
        return dispatched - start, done - start

    return take


def time_waiting(trial: Trial, size: int) -> None:
    """Queue ten multiplications on the last device and one on the first; wait for the one, or for all, or convert it.

    The bare time of a wait is that of what it is for.
    """
    backend, devices = trial.backend, trial.devices
    x, other = trial.normal(size, devices[0]), trial.normal(size, devices[-1])
    one = multiplications(trial, x, 1)
    everything = (
        (one, multiplications(trial, other, QUEUED)) if len(devices) > 1 else (multiplications(trial, x, 1 + QUEUED),)
    )

    def launch(beside: int) -> tuple[Array, object]:
        queued = multiplied(trial, other, beside)
        return multiplied(trial, x, 1)[0], queued

    def to_number(y: Array) -> float:
        return float(backend.to_numpy(backend.launch(backend.ops.total, y)))

    queue, single = partial(launch, QUEUED), partial(launch, 0)
    trial.time(ONE, take=time_until(trial, queue, backend.wait), bare=(one,))
    trial.time(ALL, take=time_until(trial, queue, lambda _: backend.waitall()), bare=everything)
    trial.time("product, to NumPy", take=time_until(trial, single, backend.to_numpy), bare=(one,))
    trial.time("product, to a number", take=time_until(trial, single, to_number), bare=(one,))
    trial.time("product, to text", take=time_until(trial, single, lambda y: str(backend.to_numpy(y))), bare=(one,))
