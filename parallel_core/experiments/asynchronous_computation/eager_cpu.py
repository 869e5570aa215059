"""Eager on a CPU: can asynchrony be seen on a CPU, on a framework that is eager and on others?

Book: Dive into Deep Learning, "Asynchronous Computation", exercise 1 of the PyTorch edition: on the
CPU, benchmark the same matrix multiplications as in the section. Can asynchrony via the backend
still be observed?

Prediction: It depends on who queues. If an operator runs on the calling thread, as an eager
framework's does on a CPU, control returns when the multiplication is done, whatever the size. If a
framework has its own engine, or a backend gives it worker threads, control returns as soon as the
multiplication is queued. The time until all is done is about the same: asynchrony moves the work
and does not shorten it.

Method: The book's ten multiplications of a normal 1000 × 1000 matrix (a smaller one if the budget
of seconds is too short), on the first device. Every other framework with an engine does the same in
a separate process for each engine, one after the other, PyTorch first, with as many threads and
without variants, because a framework reads its engine once.

Look at: the count of results that were not there when their calls had returned, on each engine of
PyTorch; `dispatch_fraction`, the time until control returns as a share of the time until all is
done, and both times of every framework and engine in one table.

Read: Of ten results none is missing if nothing was queued, and nearly all are if they were queued.
In time, near 1 nothing was queued, near 0 the multiplications were. In the JSON the backend's
`scheduler` says whose queue it is: the framework's own, or this program's threads. Times of
different processes differ by what the machine did meanwhile: `compare` measures them in alternating
rounds.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, Any, Literal, get_args

import backends
from backends import Engine
from backends.installation.frameworks import is_installed
from parallel_core.experiments.asynchronous_computation import asynchrony
from parallel_core.experiments.asynchronous_computation.asynchrony import (
    DISPATCH_FRACTION,
    TEN,
    UNFINISHED,
    dispatch_fraction,
)
from parallel_core.experiments.runner.declaration import OF_PRODUCTS, Exercise, Experiment
from parallel_core.experiments.runner.parameters import Choice, Parameter
from parallel_core.experiments.runner.trial import (
    LEAST_BUDGET,
    STARTING,
    Options,
    Trial,
    not_measured,
)
from parallel_core.experiments.workloads import FEWEST_TIMINGS, size_up_to
from parallel_core.measurement.progress import tell
from parallel_core.system.errors import MeasurementError, RequestError

Against = Literal["others", "none"]
PLAIN_PYTORCH = ("torch", "sync")
WITHOUT_ENGINE = {"numpy"}
"""Frameworks that compute in the call whatever the engine, as plain PyTorch does."""


def contrasts(against: Against, measured: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs (backend, engine) to measure in other processes; `measured` is this one's.

    They are those that are installed and can queue. PyTorch comes first, plain before with our
    queues, because the exercise asks about it.
    """
    if against == "none":
        return ()
    contrasting = []
    for name, engine in product(backends.names(), get_args(Engine)):
        is_measured_here = (name, engine) == measured
        if is_installed(name) and name not in WITHOUT_ENGINE and not is_measured_here:
            contrasting.append((name, engine))
    contrasting.sort(key=lambda pair: (pair[0] != "torch", pair != PLAIN_PYTORCH))
    return tuple(contrasting)


def share_of_this(others: Sequence[tuple[str, str]]) -> float:
    """Return the share of the budget that is for the timing in this process."""
    share_of_all = 1 - STARTING if others else 0.9
    return share_of_all / (1 + len(others))


def chosen_size(trial: Trial) -> Choice:
    """Choose the size 1000, or the largest with which enough rounds fit the budget everywhere."""
    others = contrasts(trial.parameters["against"], (trial.backend.name, trial.backend.engine))
    # The ten multiplications are timed queued and as one unit.
    multiplications = FEWEST_TIMINGS * 2 * 10
    if others:
        # Another framework may take twice as long.
        multiplications *= 2
    seconds = share_of_this(others) * trial.budget
    return size_up_to(trial, seconds / multiplications, 1000)


SIZE = replace(asynchrony.SIZE, how=chosen_size)
AGAINST = Parameter("Measure all other engines in fresh processes beside it, or none.")


def program(
    trial: Trial, size: Annotated[int, SIZE], against: Annotated[Against, AGAINST] = "others"
) -> None:
    """Time ten multiplications, here and on other engines in other processes.

    A note names the engines that could not be measured.
    """
    others = contrasts(against, (trial.backend.name, trial.backend.engine))
    asynchrony.time_ten(trial, size)
    trial.run(share_of_this(others))
    if trial.backend.name == "torch":
        trial.found_by(
            f"torch_{trial.backend.engine}_dispatch_fraction",
            dispatch_fraction(TEN),
            is_ratio=False,
        )
    options: dict[str, Any] = {
        "devices": len(trial.devices),
        "device_kind": trial.devices[0].kind,
        "variant": (),
        "threads": trial.backend.threads_per_device,
        "size": size,
        "rounds": trial.rounds,
        "against": "none",
    }
    failures: dict[str, str] = {}
    for number, (name, engine) in enumerate(others):
        tell(f"{name} {engine}, in a separate process", number / len(others))
        seconds = (1 - STARTING) * trial.left() / (len(others) - number)
        try:
            # The exercise asks for the first contrast: it has at least one round.
            if number and seconds <= 0:
                raise MeasurementError("the budget was spent (--budget gives more)")
            add_contrast(trial, name, engine, options, max(LEAST_BUDGET, seconds))
        except (RequestError, MeasurementError) as error:
            failures[f"{name} {engine}"] = str(error)
    if failures:
        first, *rest = failures
        more = f" (+{len(rest)})" if rest else ""
        trial.notes.append(not_measured(f"contrast with {first}{more}", failures[first]))


def add_contrast(trial: Trial, name: str, engine: str, options: Options, budget: float) -> None:
    """Time the ten multiplications on another backend and engine, in a fresh process.

    The case, its share of dispatch and its count are kept. Raises MeasurementError if the result is
    invalid, and RequestError if the backend cannot run there.
    """
    own_options: Options = {"backend": name, "engine": engine, "budget": budget}
    result = trial.elsewhere("eager-cpu", {**options, **own_options})
    if result.problems:
        raise MeasurementError(f"its result is invalid: {result.problems[0]}")
    (ten,) = (case for case in result.cases if case.name == TEN)
    new_name = f"{TEN}, {name} {engine}"
    trial.cases[new_name] = replace(ten, name=new_name)
    fraction = dispatch_fraction(new_name)
    trial.found_by(f"{name}_{engine}_dispatch_fraction", fraction, is_ratio=False)
    if UNFINISHED.name in result.counts:
        trial.counts[f"{name}_{engine}_{UNFINISHED.name}"] = result.counts[UNFINISHED.name]


ITSELF = replace(
    DISPATCH_FRACTION,
    name="torch_sync_dispatch_fraction",
    formula=None,
    about="with PyTorch itself",
)
WITH_THREADS = replace(
    ITSELF, name="torch_async_dispatch_fraction", about="with parallel-core's threads"
)

UNFINISHED_BY_ENGINE = tuple(
    replace(
        UNFINISHED,
        name=f"torch_{engine}_{UNFINISHED.name}",
        counted=f"results of {whose} were not there when their calls had returned",
        case="",
        tally=None,
        metric=metric.name,
        title="",
    )
    for engine, whose, metric in (
        ("sync", "PyTorch itself", ITSELF),
        ("async", "parallel-core's threads", WITH_THREADS),
    )
)

EXPERIMENT = Experiment(
    name="eager-cpu",
    question="Can asynchrony be seen on a CPU?",
    position=4,
    exercises=(Exercise(1, "Can asynchrony be observed on a CPU?", edition="PyTorch"),),
    program=program,
    case=TEN,
    # With PyTorch one of the other two metrics says the same.
    metrics=(
        replace(DISPATCH_FRACTION, said=lambda result: result.backend["name"] != "torch"),
        ITSELF,
        WITH_THREADS,
    ),
    counts=(UNFINISHED, *UNFINISHED_BY_ENGINE),
    changes=asynchrony.WHEN_CONTROL_RETURNS,
    settings=OF_PRODUCTS,
    options={
        "full": {"rounds": 5, "against": "none"},
        "quick": {"rounds": 3, "size": 500, "against": "none"},
    },
)
