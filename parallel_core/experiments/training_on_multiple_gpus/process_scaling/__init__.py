"""What training on several processes costs and gains: a few more steps, timed in four ways in turns.

    together            the ranks' steps, as they were trained
    without exchange    the same shares of the rows, and nothing is summed over processes
    alone               the whole batches on rank 0, while the others wait
    exchange alone      sums as large as the gradients, and nothing is computed

Steps without exchange have wrong gradients, which take as long to compute as right ones; they train parameters of their
own, which are discarded. How often all is timed the first rank decides, and its times are those of all.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, final

import numpy as np

from backends import Array, Backend
from backends.host import clock_without_compiling
from backends.process_groups import Group, GroupedBackend, barrier, broadcast
from parallel_core.experiments.training_on_multiple_gpus.process_scaling import verdicts
from parallel_core.experiments.training_on_multiple_gpus.process_scaling.verdicts import (
    ALONE,
    EXCHANGE,
    SILENT,
    TOGETHER,
    Timed,
)
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.result import Result
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.gradient_exchange import buckets_of, exchange
from parallel_core.training.lenet import initial_parameters
from parallel_core.training.loop import ignore, train_epoch
from parallel_core.training.step import get_params

__all__ = ["with_scaling"]

STEPS = 5
MOST_ROUNDS = 7
TIMED_SECONDS = 15.0
"""How long the rounds may take before there are fewer of them."""
LONG_STEP = 1.0
"""Seconds; if a step takes longer, only one is timed."""


def with_scaling(result: Result, backend: GroupedBackend, data: Dataset, settings: Settings, trained: int) -> Result:
    """Add to a training's result what its processes exchanged, how long that took, and how the training scales.

    All have intervals, and the answer says no more than these show. Other work on the host is not watched, for the
    ranks would be taken for it.

    `scaling_efficiency` is the speed of all n ranks over n times that of one, on the same global batches.
    `exchange_seconds` is the time of a step's exchange alone, `exposed_exchange_seconds` what a step takes longer
    than one without exchange: if exchange hides under computation it is the smaller one. `exchanged_bytes` is what
    each rank handed to the engine in the `trained` steps. All ranks must call this, and time it together. The
    result of a job of one process is returned as it is.
    """
    if backend.group.size == 1:
        return result
    few = replace(settings, limit=min(STEPS, settings.limit or STEPS))
    silent = GroupedBackend(backend.local, _Silence(backend.group), backend.device_counts, on_exchange=ignore)
    steps = {
        TOGETHER: partial(_time_step, backend, data, few),
        SILENT: partial(_time_step, silent, data, few),
        ALONE: partial(_time_alone, backend, data, few),
        EXCHANGE: partial(_time_exchange, backend, settings, few.limit or STEPS),
    }
    timed = _time_in_turns(backend, steps)
    size = sum(array.nbytes for array in initial_parameters(settings.seed, settings.width))
    intervals = verdicts.intervals_of(timed, backend.group.size)
    metrics = {name: interval.estimate for name, interval in intervals.items()} | {"exchanged_bytes": size * trained}
    bounds = {
        name: (interval.low, interval.high)
        for name, interval in intervals.items()
        if math.isfinite(interval.low + interval.high)
    }
    # Of an invalid result the answer says only that.
    answer = (
        result.answer
        if result.problems
        else Answer(
            (
                result.explanation,
                verdicts.about_speed(intervals, backend.group.size),
                verdicts.about_exchange(timed, intervals, size),
            ),
            verdicts.what_would_change(intervals, settings, len(set(backend.group.hosts))),
        )
    )
    return replace(
        result,
        metrics={**result.metrics, **metrics},
        metric_intervals={**result.metric_intervals, **bounds},
        answer=answer,
    )


def _time_in_turns(backend: GroupedBackend, ways: Mapping[str, Callable[[], float]]) -> Timed:
    """Time every way in turns, in all ranks at once; return the first rank's times, round by round, in all of them."""
    warmed = clock_without_compiling()
    _time_round(backend, ways)
    fitting = int(TIMED_SECONDS / (clock_without_compiling() - warmed))
    rounds = _of_first(backend.group, max(FEWEST_FOR_A_VERDICT, min(MOST_ROUNDS, fitting)))
    timed = [_time_round(backend, ways) for _ in range(rounds)]
    by_way: Timed = _of_first(backend.group, {name: [one[name] for one in timed] for name in ways})
    return by_way


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
    """Train whole batches on rank 0 alone; the others wait at the next barrier. Return the seconds of one step."""
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
