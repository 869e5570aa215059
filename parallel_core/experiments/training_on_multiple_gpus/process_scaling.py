"""The costs and gains of a training on several processes: a few more steps, timed in four ways.

    together            the ranks' steps, as they were trained
    without exchange    the same shares of the rows, and nothing is summed over processes
    one process         the whole batches on rank 0, while the others wait
    exchange only       sums as large as the gradients, and nothing is computed

The four ways are timed in turn. Steps without exchange have wrong gradients, which take as long to
compute as right ones; they train other parameters, which are discarded. The first rank decides how
many rounds there are, and its times count for all ranks.
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
from backends.process_groups import Group, GroupedBackend, barrier, broadcast, grouped
from parallel_core.experiments.runner.formulas import Formula, interval_of
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, gained
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.confidence_intervals import FEWEST_FOR_A_VERDICT
from parallel_core.measurement.result import Case, Result
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset
from parallel_core.training.lenet import start_of
from parallel_core.training.loop import ignore, train_epoch
from parallel_core.training.step import buckets_of, exchange, get_params

TOGETHER, SILENT, ONE, EXCHANGE = "together", "without exchange", "one process", "exchange only"
STEPS = 5
MOST_ROUNDS = 7
TIMED_SECONDS = 15.0
"""About how many seconds all rounds may take; there are fewer rounds if they would take longer."""
LONG_STEP = 1.0
"""The seconds of a step from which on one process times only one: the other ranks wait at a
barrier, and their wait has a deadline.
"""


def measure_scaling(trial: Trial, data: Dataset, settings: Settings, trained: int) -> None:
    """Find how a training scales over its processes, the time of exchanges, and the bytes of those
    in its `trained` steps.

    All ranks must call this at the same time. With a single process nothing is found.
    """
    backend = grouped(trial.backend)
    if backend is None or backend.group.size == 1:
        return
    group = backend.group
    few_steps = replace(settings, limit=min(STEPS, settings.limit or STEPS))
    ways = {
        TOGETHER: partial(_time_step, backend, data, few_steps),
        SILENT: partial(_time_step, _without_exchange(backend), data, few_steps),
        ONE: partial(_time_on_first, backend, data, few_steps),
        EXCHANGE: partial(_time_exchange, backend, few_steps),
    }
    before = clock_without_compiling()
    _time_round(backend, ways)
    seconds_of_round = clock_without_compiling() - before
    fitting = int(TIMED_SECONDS / seconds_of_round)
    own_rounds = max(FEWEST_FOR_A_VERDICT, min(MOST_ROUNDS, fitting))
    rounds = of_first(group, own_rounds)
    own_times = [_time_round(backend, ways) for _ in range(rounds)]
    times_of_rounds = of_first(group, own_times)
    seconds = {way: [times[way] for times in times_of_rounds] for way in ways}
    find_figures(trial, seconds, group.size)
    size = sum(array.nbytes for array in start_of(settings))
    trial.found("exchanged_bytes", size * trained)


def find_figures(trial: Trial, seconds: Mapping[str, list[float]], processes: int) -> None:
    """Find the figures that follow from the seconds of a step in the four ways, round by round."""
    trial.parameters["processes"] = processes
    cases = {}
    for way, in_rounds in seconds.items():
        cases[way] = Case(way, tuple(in_rounds), tuple(in_rounds))
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
    """Return a backend of a group that exchanges nothing: the sum of a rank's values is its own."""
    group = SimpleNamespace(
        rank=backend.group.rank,
        size=backend.group.size,
        hosts=backend.group.hosts,
        sum=lambda values: values,
        sum_on_host=lambda values: values,
        waitall=ignore,
        close=ignore,
        transport="silence",
    )
    return GroupedBackend(
        backend.inner, cast(Group, group), backend.device_counts, on_exchange=ignore
    )


def _time_round(
    backend: GroupedBackend, ways: Mapping[str, Callable[[], float]]
) -> dict[str, float]:
    """Time every way once, on all ranks at the same time; return the seconds of a step by way."""
    seconds = {}
    for name, time_once in ways.items():
        barrier(backend.group)
        seconds[name] = time_once()
        # A watchdog watches the exchanges, and some ways have none.
        backend.on_exchange(backend.exchanges)
    return seconds


def of_first(group: Group, value: Any) -> Any:
    """Return the first rank's value on all ranks."""
    return json.loads(broadcast(group, json.dumps(value).encode()))


def _time_step(backend: Backend, data: Dataset, settings: Settings) -> float:
    """Train new parameters for the steps of the settings; return the seconds of one step."""
    params = [
        get_params(backend, device, settings.seed, settings.width) for device in backend.devices
    ]
    epoch = train_epoch(backend, params, data, settings, number=1)
    return epoch.seconds / len(epoch.losses)


def _time_on_first(backend: GroupedBackend, data: Dataset, settings: Settings) -> float:
    """Train whole batches on rank 0 only, and return the seconds of one step; 0 on other ranks.

    The other ranks wait at the next barrier.
    """
    if backend.group.rank > 0:
        return 0.0
    seconds = _time_step(backend.inner, data, replace(settings, limit=1))
    if seconds > LONG_STEP:
        return seconds
    return _time_step(backend.inner, data, settings)


def _time_exchange(backend: GroupedBackend, settings: Settings) -> float:
    """Exchange zeros in the shapes of the gradients; return the seconds of one step's exchange."""
    zeros = tuple(np.zeros_like(array) for array in start_of(settings))
    gradients = [backend.asarray(zeros, device) for device in backend.devices]
    buckets = buckets_of(settings.exchange)
    steps = settings.limit or STEPS
    backend.waitall()
    start = perf_counter()
    for _ in range(steps):
        gradients = exchange(backend, gradients, buckets)
        backend.wait(tuple(gradients))
    return (perf_counter() - start) / steps


def gained_by_processes(efficiency: float, result: Result) -> float:
    """Return the gain of all processes over one, as a share of the gain that is possible."""
    processes = result.parameters.get("processes", 2)
    return gained(efficiency * processes, processes)


EFFICIENCY = Metric(
    "scaling_efficiency",
    means="the speed of all n processes over n times that of one: 1 is the most",
    share=gained_by_processes,
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
