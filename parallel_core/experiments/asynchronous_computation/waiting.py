"""Barriers and blockers: what each way of waiting really waits for.

`wait` asks for one result, `waitall` for everything on every device. Converting a result to NumPy, to a Python
number or to text waits for it too, without saying so.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

from backends import Array, Backend
from parallel_core.experiments.measuring import Units, take_in_turn
from parallel_core.experiments.products import normal_matrix, products, products_as_unit
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing

__all__ = ["compare_barriers", "time_blockers", "time_until"]

QUEUED = 10
ONE, ALL = "wait for one result", "waitall"

Launched = tuple[Array, Sequence[Array]]
"""The value that is to be waited for, and those that are queued beside it."""


def time_until(backend: Backend, wait: Callable[[Array], object], launch: Callable[[], Launched]) -> Timing:
    """Launch on idle devices and `wait` for the value; return the seconds until control returned, and it was there.

    What else was launched is kept, and done, before this returns.
    """
    backend.waitall()
    start = perf_counter()
    awaited, others = launch()
    dispatched = perf_counter()
    wait(awaited)
    done = perf_counter()
    backend.waitall()
    del others
    return dispatched - start, done - start


def compare_barriers(backend: Backend, size: int, rounds: int, budget: float) -> tuple[Case, Case]:
    """Queue ten products on the last device and one on the first; wait for the one, or for all.

    The bare time of a wait is that of what it is for: the one product, or all of them.
    """
    mine = normal_matrix(backend, size, backend.devices[0])
    other = normal_matrix(backend, size, backend.devices[-1])

    def launch() -> Launched:
        queued = products(backend, other, QUEUED)
        return products(backend, mine, 1)[0], queued

    one, everything = take_in_turn(
        backend,
        {
            ONE: lambda: time_until(backend, backend.wait, launch),
            ALL: lambda: time_until(backend, lambda _: backend.waitall(), launch),
        },
        rounds,
        units=Units(
            {
                "one": products_as_unit(backend, mine, 1),
                "queued": products_as_unit(backend, other, QUEUED + (len(backend.devices) == 1)),
            },
            {ONE: ("one",), ALL: ("one", "queued")},
        ),
        budget=budget,
    ).values()
    return one, everything


def time_blockers(backend: Backend, size: int, rounds: int, budget: float) -> tuple[Case, ...]:
    """Time a product that is converted: to NumPy, to a Python number (its sum), to text."""
    x = normal_matrix(backend, size, backend.devices[0])

    def until(convert: Callable[[Array], object]) -> Timing:
        return time_until(backend, convert, lambda: (backend.launch(backend.ops.matmul, x, x), ()))

    takes = {
        "product, to NumPy": lambda: until(backend.to_numpy),
        "product, to a number": lambda: until(lambda y: float(backend.to_numpy(backend.launch(backend.ops.total, y)))),
        "product, to text": lambda: until(lambda y: str(backend.to_numpy(y))),
    }
    units = Units({"product": products_as_unit(backend, x, 1)}, dict.fromkeys(takes, ("product",)))
    return tuple(take_in_turn(backend, takes, rounds, units=units, budget=budget).values())
