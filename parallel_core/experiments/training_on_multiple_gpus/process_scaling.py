"""What training on several processes costs and gains: a few more steps, timed in four ways in turn.

    together            the ranks' steps, as they were trained
    without exchange    the same shares of the rows, and nothing is summed over processes
    one process         the whole batches on rank 0, while the others wait
    exchange only       sums as large as the gradients, and nothing is computed

Steps without exchange have wrong gradients, which take as long to compute as right ones; they train
parameters of their own, which are discarded. How often all is timed the first rank decides, and its
times are those of all.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from backends import Backend
from backends.host import clock_without_compiling
from backends.process_groups import Group, GroupedBackend, barrier, broadcast
from parallel_core.experiments.runner.formulas import Formula, interval_of
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, gained
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.result import Case
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import ignore, train_epoch
from parallel_core.training.step import buckets_of, exchange, get_params

TOGETHER, SILENT, ONE, EXCHANGE = "together", "without exchange", "one process", "exchange only"
STEPS = 5
MOST_ROUNDS = 7
TIMED_SECONDS = 15.0
"""How long the rounds may take before there are fewer of them."""
LONG_STEP = 1.0
"""Seconds; if a step takes longer, only one is timed: the others' wait at a barrier must not exceed
the deadline.
"""


def measure_scaling(trial: Trial, data: Dataset, settings: Settings, trained: int) -> None:
    """Find what the processes of a training exchanged in its `trained` steps, how long that took,
    and how it scales.

    All ranks must call this, and time it together. Of a single process there is nothing to find.
    """
    backend = trial.backend
    if not isinstance(backend, GroupedBackend) or backend.group.size == 1:
        return
    few = replace(settings, limit=min(STEPS, settings.limit or STEPS))
    ways = {
        TOGETHER: partial(_time_step, backend, data, few),
        SILENT: partial(_time_step, _without_exchange(backend), data, few),
        ONE: partial(_time_on_first, backend, data, few),
        EXCHANGE: partial(_time_exchange, backend, few),
    }
    warmed = clock_without_compiling()
    _time_round(backend, ways)
    fitting = int(TIMED_SECONDS / (clock_without_compiling() - warmed))
    rounds = of_first(backend.group, max(FEWEST_FOR_A_VERDICT, min(MOST_ROUNDS, fitting)))
    timed = of_first(backend.group, [_time_round(backend, ways) for _ in range(rounds)])
    find_figures(trial, {way: [one[way] for one in timed] for way in ways}, backend.group.size)
    size = sum(array.nbytes for array in initial_parameters(settings.seed, settings.width))
    trial.found("exchanged_bytes", size * trained)


def find_figures(trial: Trial, timed: Mapping[str, list[float]], processes: int) -> None:
    """Keep the figures of a step's seconds in the four ways, round by round."""
    trial.parameters["processes"] = processes
    cases = {way: Case(way, tuple(seconds), tuple(seconds)) for way, seconds in timed.items()}
    formulas: Mapping[str, Formula] = {
        EFFICIENCY.name: lambda times: times[ONE] / (processes * times[TOGETHER]),
        EXPOSED.name: lambda times: times[TOGETHER] - times[SILENT],
        "step_seconds": lambda times: times[TOGETHER],
        "lone_step_seconds": lambda times: times[ONE],
        "exchange_seconds": lambda times: times[EXCHANGE],
    }
    for name, formula in formulas.items():
        trial.found(name, interval_of(formula, cases, is_ratio=name != EXPOSED.name))


def _without_exchange(backend: GroupedBackend) -> GroupedBackend:
    """Return a backend of a group that sums nothing: every rank keeps what it has."""
    group = SimpleNamespace(
        **{name: getattr(backend.group, name) for name in ("rank", "size", "hosts")},
        **dict.fromkeys(("sum", "sum_on_host"), lambda x: x),
        **dict.fromkeys(("waitall", "close"), ignore),
        transport="silence",
    )
    return GroupedBackend(
        backend.inner, cast(Group, group), backend.device_counts, on_exchange=ignore
    )


def _time_round(
    backend: GroupedBackend, ways: Mapping[str, Callable[[], float]]
) -> dict[str, float]:
    """Time every way in turn, in all ranks at once."""
    seconds = {}
    for name, time_once in ways.items():
        barrier(backend.group)
        seconds[name] = time_once()
        # A way without exchanges is progress, too.
        backend.on_exchange(backend.exchanges)
    return seconds


def of_first(group: Group, value: Any) -> Any:
    """Give all ranks what the first one has."""
    return json.loads(broadcast(group, json.dumps(value).encode()))


def _time_step(backend: Backend, data: Dataset, settings: Settings) -> float:
    """Train from the start for a few steps; return the seconds of one."""
    params = [
        get_params(backend, device, settings.seed, settings.width) for device in backend.devices
    ]
    epoch = train_epoch(backend, params, data, settings, number=1)
    return epoch.seconds / len(epoch.losses)


def _time_on_first(backend: GroupedBackend, data: Dataset, settings: Settings) -> float:
    """Train whole batches on rank 0 only; the others wait at the next barrier.

    Return the seconds of one step.
    """
    if backend.group.rank > 0:
        return 0.0
    one = _time_step(backend.inner, data, replace(settings, limit=1))
    return one if one > LONG_STEP else _time_step(backend.inner, data, settings)


def _time_exchange(backend: GroupedBackend, settings: Settings) -> float:
    """Exchange zeros in the shapes of the gradients; return the seconds of one step's exchange."""
    zeros = tuple(
        np.zeros_like(array) for array in initial_parameters(settings.seed, settings.width)
    )
    gradients = [backend.asarray(zeros, device) for device in backend.devices]
    buckets, steps = buckets_of(settings.exchange), settings.limit or STEPS
    backend.waitall()
    start = perf_counter()
    for _ in range(steps):
        gradients = exchange(backend, gradients, buckets)
        backend.wait(tuple(gradients))
    return (perf_counter() - start) / steps


EFFICIENCY = Metric(
    "scaling_efficiency",
    means="the speed of all n processes over n times that of one: 1 is the most",
    share=lambda efficiency, result: gained(
        efficiency * (n := result.parameters.get("processes", 2)), n
    ),
    bands=(
        Band(LOWEST, "slower", "A single process is faster than all together"),
        Band(0.0, "faster", "Further processes counted in part"),
        Band(0.8, "scaled", "Further processes counted nearly in full"),
    ),
)
EXPOSED = Metric(
    "exposed_exchange_seconds",
    means="what a step takes longer than one without exchange",
    # If the exchange hides under computation it is less than the exchange by itself.
    share=lambda seconds, result: seconds / result.metrics["exchange_seconds"],
    bands=(
        Band(LOWEST, "hidden", "The exchange between processes hid under the computation"),
        Band(0.2, "partly", "The exchange between processes hid in part under the computation"),
        Band(0.8, "exposed", "Steps waited for the exchange between processes"),
        Band(1.2, "waiting", "Besides the exchange, processes waited for each other"),
    ),
)
SCALING = (EFFICIENCY, EXPOSED)
