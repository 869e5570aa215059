"""What training on several processes costs and gains: a few more steps, timed in four ways in turn.

    together            the ranks' steps, as they were trained
    without exchange    the same shares of the rows, and nothing is summed over processes
    alone               the whole batches on rank 0, while the others wait
    exchange alone      sums as large as the gradients, and nothing is computed

Steps without exchange have wrong gradients, which take as long to compute as right ones; they train parameters of their
own, which are discarded. How often all is timed the first rank decides, and its times are those of all.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, final

import numpy as np

from backends import Array, Backend
from backends.host import clock_without_compiling
from backends.process_groups import Group, GroupedBackend, barrier, broadcast
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.result import Case
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.gradient_exchange import buckets_of, exchange
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import ignore, train_epoch
from parallel_core.training.step import get_params

__all__ = ["SCALING", "find_figures", "measure_scaling"]

TOGETHER, SILENT, ALONE, EXCHANGE = "together", "without exchange", "alone", "exchange alone"

STEPS = 5
MOST_ROUNDS = 7
TIMED_SECONDS = 15.0
"""How long the rounds may take before there are fewer of them."""
LONG_STEP = 1.0
"""Seconds; if a step takes longer, only one is timed."""


def measure_scaling(trial: Trial, data: Dataset, settings: Settings, trained: int) -> None:
    """Find what the processes of a training exchanged in its `trained` steps, how long that took, and how it scales.

    All ranks must call this, and time it together. Of a single process there is nothing to find.
    """
    backend = trial.backend
    if not isinstance(backend, GroupedBackend) or backend.group.size == 1:
        return
    few = replace(settings, limit=min(STEPS, settings.limit or STEPS))
    silent = GroupedBackend(backend.local, _Silence(backend.group), backend.device_counts, on_exchange=ignore)
    steps = {
        TOGETHER: partial(_time_step, backend, data, few),
        SILENT: partial(_time_step, silent, data, few),
        ALONE: partial(_time_alone, backend, data, few),
        EXCHANGE: partial(_time_exchange, backend, settings, few.limit or STEPS),
    }
    find_figures(trial, _time_in_turn(backend, steps), backend.group.size)
    size = sum(array.nbytes for array in initial_parameters(settings.seed, settings.width))
    trial.found("exchanged_bytes", size * trained)


def find_figures(trial: Trial, timed: Mapping[str, Case], processes: int) -> None:
    """Keep the figures of a step's times in the four ways."""
    trial.parameters["processes"] = processes
    efficiency = replace(EFFICIENCY, formula=lambda times: times[ALONE] / (processes * times[TOGETHER]))
    for metric in (efficiency, EXPOSED, STEP, LONE_STEP, EXCHANGED):
        if (interval := metric.measured(timed)) is not None:
            trial.found(metric.name, interval)


def _time_in_turn(backend: GroupedBackend, ways: Mapping[str, Callable[[], float]]) -> dict[str, Case]:
    """Time every way in turn, in all ranks at once; return the first rank's times of a step in all of them."""
    warmed = clock_without_compiling()
    _time_round(backend, ways)
    fitting = int(TIMED_SECONDS / (clock_without_compiling() - warmed))
    rounds = _of_first(backend.group, max(FEWEST_FOR_A_VERDICT, min(MOST_ROUNDS, fitting)))
    timed = [_time_round(backend, ways) for _ in range(rounds)]
    by_way = _of_first(backend.group, {name: [one[name] for one in timed] for name in ways})
    return {name: Case(name, tuple(seconds), tuple(seconds)) for name, seconds in by_way.items()}


def _time_round(backend: GroupedBackend, ways: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    seconds = {}
    for name, time_once in ways.items():
        barrier(backend.group)
        seconds[name] = time_once()
        # A way without exchanges is progress, too.
        backend.on_exchange(backend.exchanges)
    return seconds


def _of_first(group: Group, value: Any) -> Any:
    """Give all ranks what the first one has."""
    return json.loads(broadcast(group, json.dumps(value).encode()))


def _time_step(backend: Backend, data: Dataset, settings: Settings) -> float:
    """Train from the start for a few steps; return the seconds of one."""
    params = [get_params(backend, device, settings.seed, settings.width) for device in backend.devices]
    epoch = train_epoch(backend, params, data, settings, number=1)
    return epoch.seconds / len(epoch.losses)


def _time_alone(backend: GroupedBackend, data: Dataset, settings: Settings) -> float:
    """Train whole batches on rank 0 only; the others wait at the next barrier. Return the seconds of one step."""
    if backend.group.rank > 0:
        return 0.0
    one = _time_step(backend.local, data, replace(settings, limit=1))
    # The wait at the barrier must not exceed the deadline.
    return one if one > LONG_STEP else _time_step(backend.local, data, settings)


def _time_exchange(backend: GroupedBackend, settings: Settings, steps: int) -> float:
    """Exchange zeros in the shapes of the gradients; return the seconds of one step's exchange."""
    zeros = tuple(np.zeros_like(array) for array in initial_parameters(settings.seed, settings.width))
    gradients = [backend.asarray(zeros, device) for device in backend.devices]
    buckets = buckets_of(settings.exchange, len(zeros))
    backend.waitall()
    start = perf_counter()
    for _ in range(steps):
        gradients = exchange(backend, gradients, buckets)
        backend.wait(tuple(gradients))
    return (perf_counter() - start) / steps


@final
class _Silence:
    """A group that sums nothing: every rank keeps what it has."""

    transport = "silence"

    def __init__(self, group: Group) -> None:
        self.rank, self.size, self.hosts = group.rank, group.size, group.hosts

    def sum(self, x: Array) -> Array:
        return x

    def sum_on_host(self, x: np.ndarray) -> np.ndarray:
        return x

    def waitall(self) -> None:
        pass

    def close(self) -> None:
        pass


EFFICIENCY = Metric(
    "scaling_efficiency",
    means="the speed of all n processes over n times that of one: 1 is the most",
    ratio=True,
    share=lambda efficiency, result: (
        (efficiency * result.parameters["processes"] - 1) / (result.parameters["processes"] - 1)
    ),
    bands=(
        Band(LOWEST, "slower", "A single process is faster than all together"),
        Band(0.0, "faster", "Further processes counted in part"),
        Band(0.8, "scaled", "Further processes counted nearly in full"),
    ),
)
EXPOSED = Metric(
    "exposed_exchange_seconds",
    lambda times: times[TOGETHER] - times[SILENT],
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
STEP = Metric("step_seconds", lambda times: times[TOGETHER], ratio=True)
LONE_STEP = Metric("lone_step_seconds", lambda times: times[ALONE], ratio=True)
EXCHANGED = Metric("exchange_seconds", lambda times: times[EXCHANGE], ratio=True)
SCALING = (EFFICIENCY, EXPOSED)
