"""Batch normalisation: by which rows' statistics does batch normalisation go, when the batch is divided?

Book: Dive into Deep Learning, "Training on Multiple GPUs", the remark on batch normalization: it must be adjusted to
data parallelism, "e.g., by keeping a separate batch normalization coefficient per GPU".

Prediction: A mean and a variance over the global batch make the same step as one device makes, but every device waits
for all others inside the forward pass, and again inside the backward pass, because its loss depends on all rows through
them. Each device's own rows estimate mean and variance with errors that shrink with the square root of their number, so
the step differs by less the more rows a device has, and nothing but the gradients is exchanged.

Method: A perceptron with one batch-norm layer takes a step on a batch that is divided over the devices, with statistics
of each device's rows and with synchronised ones (sums and sums of squares are exchanged, and later the gradients by
them). Either way all parameters, scale and shift too, are the same on all devices. What a step changes in the
parameters is compared with NumPy's step on one device, in float64. Rows are drawn independently, and labels follow from
them. The time of a step is taken in float32. Rows per device grow in doublings.

Look at: The two differences, `per_device_difference_fraction` and `synchronised_difference_fraction`, at the most rows;
the curve of `difference` over the rows per device; `synchronising_cost`, the time of a step with synchronised
statistics over that without, at the most rows.

Read: A synchronised difference of more than rounding would be an error in the backward pass. A difference per device is
no error: another function is trained, with noisier statistics. Synchronising exchanges few bytes and computes the first
product once more on the way back; it costs mostly launches and waits, which hardly depend on the number of rows and so
weigh less the more there are. The synchronous engine waits for no other device: there only the operations cost time.
Rows that are sorted before they are divided would differ by far more.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from backends import Backend
from parallel_core.errors import RequestError
from parallel_core.experiments.measuring import allows_verdict, refuse_single_device, result_of
from parallel_core.experiments.runner.declaration import BUDGET, Budget, Experiment, Parameter, Rounds
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import verdicts
from parallel_core.experiments.training_on_multiple_gpus.batch_norm.steps import (
    PER_DEVICE,
    SYNCHRONISED,
    WAYS,
    difference,
    record_step,
    time_steps,
)
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import doublings
from parallel_core.experiments.training_on_multiple_gpus.sweeping import swept
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.sweep import Curves
from parallel_core.measurement.task_graph import Task
from parallel_core.measurement.verdicts import times_as_long

__all__ = ["EXPERIMENT", "run"]

MIN_ROWS = 8
"""Over fewer rows a unit's variance is now and then so small that its gradient outweighs all others."""
ROWS_WORTH_A_CALL = 64
"""Up to about so many rows a step takes as long as its calls."""
TIMED_SHARE = 0.9
"""Of the budget: for the sweep, before the last checks."""


def run(
    backend: Backend,
    rows: Annotated[int, Parameter("Most rows per device.")] = 256,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Compare and time steps of 8 to `rows` rows per device, in doublings.

    Raises RequestError for a backend with a single device, and for fewer than 8 rows.
    """
    count = len(backend.devices)
    refuse_single_device(backend, "batch-norm", "divides a batch")
    if rows < MIN_ROWS:
        raise RequestError(f"a variance over {rows} rows says little: choose at least {MIN_ROWS} (--rows)")
    numbers = tuple(doublings(MIN_ROWS, rows))
    most = numbers[-1]
    differences: dict[str, list[float]] = {name: [] for name in WAYS}
    timed: dict[int, dict[str, Case]] = {}
    for some, left in swept(numbers, [ROWS_WORTH_A_CALL + some for some in numbers], TIMED_SHARE * budget):
        for name, way in WAYS.items():
            differences[name].append(difference(backend, way, count * some))
        timed[some] = time_steps(backend, some, rounds, left())
    recorded = {name: record_step(backend, WAYS[name], count * most) for name in WAYS}

    def added(count: Callable[[Task], int]) -> int:
        """Return how much more of something a step with synchronised statistics has."""
        return sum(map(count, recorded[SYNCHRONISED])) - sum(map(count, recorded[PER_DEVICE]))

    extra_allreduces, extra_bytes = added(lambda task: task.kind == "allreduce"), added(lambda task: task.bytes)
    # Shards of unequal length: every row must weigh alike.
    uneven = difference(backend, WAYS[SYNCHRONISED], count * MIN_ROWS + count - 1)
    error = largest_of(
        [uneven, *differences[SYNCHRONISED], difference(backend, WAYS[PER_DEVICE], count * MIN_ROWS, count)]
    )
    cases = [replace(case, name=f"{name}, {some} rows") for some in timed for name, case in timed[some].items()]
    per_device, synchronised = (timed[most][name] for name in (PER_DEVICE, SYNCHRONISED))
    return result_of(
        "batch-norm",
        backend,
        parameters={"rows": rows, "rounds": rounds, "budget": budget},
        cases=cases,
        metrics={
            "synchronising_cost": synchronised.median / per_device.median,
            "per_device_difference_fraction": differences[PER_DEVICE][-1],
            "synchronised_difference_fraction": differences[SYNCHRONISED][-1],
            "synchronising_allreduces": float(extra_allreduces),
            "synchronising_bytes": float(extra_bytes),
        },
        intervals={"synchronising_cost": times_as_long(synchronised, per_device)},
        explanation=verdicts.verdict(differences[SYNCHRONISED][-1], differences[PER_DEVICE][-1], most),
        answer=Answer(
            (
                verdicts.about_growth(numbers, differences[PER_DEVICE]),
                verdicts.about_cost(per_device, synchronised, most)
                if allows_verdict(cases)
                else "What synchronising costs cannot be said: other work took too much of the cores' time.",
            ),
            verdicts.what_would_change(backend, per_device, synchronised, most),
        ),
        notes=(verdicts.about_exchange(extra_allreduces, extra_bytes),),
        error=error,
        compared="steps",
        of="the largest change",
        # How far the steps differ stays true on a machine that was disturbed.
        judges_times=False,
        series={
            "rows": tuple(map(float, numbers)),
            "difference": tuple(differences[PER_DEVICE]),
            **{f"seconds {name}": tuple(cases[name].median for cases in timed.values()) for name in WAYS},
        },
    )


EXPERIMENT = Experiment(
    name="batch-norm",
    position=7,
    remark="the remark on batch normalization",
    run=run,
    case="synchronised statistics, 64 rows",
    metric="synchronising_cost",
    metric_means="a step's time with statistics of all rows over that with each device's own: 1 is no cost",
    curves=Curves(
        over="rows",
        quantity="difference",
        x_title="rows per device",
        y_title="difference of a step",
        log_y=True,
        in_place_of_times=False,
        caption="How far a step with statistics of each device's rows is from the step of one device, as a "
        "share of the largest change.",
    ),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "rows": 64}},
)
