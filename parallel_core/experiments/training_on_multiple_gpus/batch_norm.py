"""Batch normalisation: by which rows' statistics does batch normalisation go, when the batch is
divided?

Book: Dive into Deep Learning, "Training on Multiple GPUs", the remark on batch normalization: it
must be adjusted to data parallelism, "e.g., by keeping a separate batch normalization coefficient
per GPU".

Prediction: A mean and a variance over the global batch make the same step as one device makes, but
every device waits for all others inside the forward pass, and again inside the backward pass,
because its loss depends on all rows through them. Each device's own rows estimate mean and variance
with errors that shrink with the square root of their number, so the step differs by less the more
rows a device has, and nothing but the gradients is exchanged.

Method: A perceptron with one batch-norm layer takes a step on a batch that is divided over the
devices, with statistics of each device's rows and with synchronised ones (sums and sums of squares
are exchanged, and later the gradients by them). Either way all parameters, scale and shift too, are
the same on all devices. What a step changes in the parameters is compared with NumPy's step on one
device, in float64. Rows are drawn independently, and labels follow from them. The time of a step is
taken in float32. Rows per device grow in doublings.

Look at: `synchronising_cost`, the time of a step with synchronised statistics over that without, at
the most rows; the two differences there, `per_device_difference_fraction` and
`synchronised_difference_fraction`; the curve of `difference` over the rows per device.

Read: A synchronised difference of more than rounding would be an error in the backward pass. A
difference per device is no error: another function is trained, with noisier statistics.
Synchronising exchanges few bytes and computes the first matrix multiplication once more on the way
back; it costs mostly launches and waits, which hardly depend on the number of rows and so weigh
less the more there are. The synchronous engine waits for no other device: there only the operations
cost time. Rows that are sorted before they are divided would differ by far more.
"""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import mean
from typing import Annotated

import numpy as np

import backends
from backends import Array, Backend, Ops
from parallel_core.experiments.runner.changes import LESS_NOISE, larger
from parallel_core.experiments.runner.declaration import Experiment
from parallel_core.experiments.runner.formulas import ratio
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, answer_by
from parallel_core.experiments.runner.parameters import Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_steps import (
    Strategy,
    of_own_rows,
    step_by,
    swept,
    time_steps_in_a_row,
)
from parallel_core.experiments.workloads import Program, geometric, record
from parallel_core.measurement.checks import largest_of, relative_error
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.sweep import Curves
from parallel_core.system.errors import RequestError

NAMES = PER_DEVICE, SYNCHRONISED = "statistics per device", "synchronised statistics"
MIN_ROWS = 8
"""The fewest rows that are normalised together.

Over fewer a unit's variance is now and then so small that its gradient outweighs all others.
"""
ROWS_WORTH_A_CALL = 64
"""The rows up to which a step takes as long as its calls, about."""
DRAWS = 3
"""Batches over which a difference is averaged."""
STEPS = 5
"""Steps in one timing."""
RATE = 0.1
INPUTS, UNITS, CLASSES = 64, 128, 10
"""The sizes of the network. Its parameters are the first weight, scale and shift of the normalised
units, and the second weight and bias; the shift is also the first bias.
"""
EPSILON = 1e-5
ROUNDING = 1e-5
"""A difference below this is called rounding.

Frameworks compute in float64, but may round the learning rate to float32.
"""


def program(trial: Trial, rows: Annotated[int, Parameter("Most rows per device.")] = 256) -> None:
    """Compare and time steps of 8 to `rows` rows per device, in doublings.

    Raises RequestError for a single device, and for fewer than 8 rows.
    """
    backend, count = trial.backend, len(trial.devices)
    trial.refuse_single_device("batch-norm", "divides a batch")
    if rows < MIN_ROWS:
        raise RequestError(
            f"a variance over {rows} rows says little: choose at least {MIN_ROWS} (--rows)"
        )
    rows_per_device = geometric(MIN_ROWS, rows)
    differences: dict[str, list[float]] = {name: [] for name in NAMES}
    weights = [ROWS_WORTH_A_CALL + number for number in rows_per_device]
    for number in swept(trial, rows_per_device, weights):
        for name in NAMES:
            differences[name].append(difference(backend, name, count * number))
            step = in_single_precision(name, count * number)
            time_steps_in_a_row(trial, f"{name}, {number} rows", step, STEPS)
    # With shards of unequal length too, every row must have the same weight.
    uneven = difference(backend, SYNCHRONISED, count * MIN_ROWS + count - 1)
    by_device = difference(backend, PER_DEVICE, count * MIN_ROWS, devices=count)
    errors = [uneven, by_device, *differences[SYNCHRONISED]]
    trial.errors["changes of the parameters"] = largest_of(errors)

    most = rows_per_device[-1]
    cost = ratio(f"{SYNCHRONISED}, {most} rows", f"{PER_DEVICE}, {most} rows")
    trial.found_by("synchronising_cost", cost)
    for kind, name in (("per_device", PER_DEVICE), ("synchronised", SYNCHRONISED)):
        with_most_rows = differences[name][-1]
        interval = Interval(with_most_rows, with_most_rows, with_most_rows)
        trial.found(f"{kind}_difference_fraction", interval)
    find_exchange(trial, count * most)
    trial.points[""] = dict(zip(rows_per_device, differences[PER_DEVICE], strict=True))
    series = {}
    for name in NAMES:
        cases = [trial.cases[f"{name}, {number} rows"] for number in rows_per_device]
        series[f"seconds {name}"] = tuple(case.median for case in cases)
    trial.described["series"] = series


def find_exchange(trial: Trial, rows: int) -> None:
    """Find how many allreduces and bytes synchronised statistics add to a step of `rows` rows."""
    allreduces: dict[str, int] = {}
    moved_bytes: dict[str, int] = {}
    for name in NAMES:
        tasks = record(trial.backend, in_single_precision(name, rows))
        allreduces[name] = sum(task.kind == "allreduce" for task in tasks)
        moved_bytes[name] = sum(task.bytes for task in tasks)
    added_allreduces = allreduces[SYNCHRONISED] - allreduces[PER_DEVICE]
    added_bytes = moved_bytes[SYNCHRONISED] - moved_bytes[PER_DEVICE]
    trial.found("synchronising_allreduces", float(added_allreduces))
    trial.found("synchronising_bytes", float(added_bytes))


def synchronised(
    rows: int, backend: Backend, replicas: Sequence[Array], shards: Sequence[Array]
) -> list[Array]:
    """Launch every device's gradients, with all rows normalised by the global batch's statistics.

    The devices exchange the sums from which mean and variance follow. Through these sums every
    device's loss depends on all rows, so the gradients by the sums are exchanged too. Every row has
    the same weight in the sums, however the rows are divided.
    """
    ops, launch = backend.ops, backend.launch
    devices = range(len(replicas))
    inputs = [x for x, _ in shards]
    labels = [device_labels for _, device_labels in shards]

    compute_z_and_sums = with_sums(ops)
    z_and_sums = [launch(compute_z_and_sums, replicas[k], inputs[k]) for k in devices]
    z = [of_device[0] for of_device in z_and_sums]
    sums = backend.allreduce([of_device[1] for of_device in z_and_sums])

    back_to_z = by_the_rest(ops, rows)
    gradients = [launch(back_to_z, replicas[k], z[k], sums[k], labels[k]) for k in devices]
    by_other_parameters = [of_device[0] for of_device in gradients]
    by_z = [of_device[1] for of_device in gradients]
    by_sums = backend.allreduce([of_device[2] for of_device in gradients])

    back_to_weight = by_first_weight(ops)
    by_weight = [
        launch(back_to_weight, replicas[k], inputs[k], by_z[k], by_sums[k]) for k in devices
    ]
    gradients_by_device = []
    for k in devices:
        by_scale_shift_weight_bias = [by_other_parameters[k][number] for number in range(4)]
        gradients_by_device.append((by_weight[k], *by_scale_shift_weight_bias))
    return gradients_by_device


def difference(backend: Backend, name: str, rows: int, devices: int = 1) -> float:
    """Return how far a step of a strategy is from NumPy's step with statistics per device.

    NumPy divides the same `rows` over `devices`. The difference is a share of the largest change of
    the parameter that differs most, averaged over a few batches.
    """
    reference = backends.load(
        "numpy", devices=devices, threads_per_device=backend.threads_per_device
    )
    strategy, per_device = strategies(rows)[name], strategies(rows)[PER_DEVICE]
    parameters = initial_parameters()
    errors = []
    for seed in range(1, DRAWS + 1):
        training = (parameters, synthetic_batch(rows, seed), 1 / rows)
        changes = strategy.changes(backend, *training)
        expected = per_device.changes(reference, *training)
        errors.append(largest_of(map(relative_error, changes, expected)))
    return mean(errors)


def with_sums(ops: Ops) -> Callable[[Array, Array], Array]:
    """Make the function (parameters, x) -> (z, (column sums of z, column sums of z²)).

    z is x · first weight: the units before they are normalised.
    """

    def apply(parameters: Array, x: Array) -> Array:
        z = ops.matmul(x, parameters[0])
        return z, (ops.total(z, 0), ops.total(ops.power(z, 2), 0))

    return apply


def loss_of_normalised(
    ops: Ops, parameters: Array, z: Array, sums: Array, rows: int, labels: Array
) -> Array:
    """Return the sum of the losses of z's rows, normalised by the column sums over `rows` rows."""
    _, scale, shift, weight, bias = parameters
    mean, mean_of_squares = (ops.multiply(total, 1 / rows) for total in sums)
    variance = ops.add(mean_of_squares, ops.multiply(ops.power(mean, 2), -1.0))
    centred = ops.add(z, ops.multiply(mean, -1.0))
    normalised = ops.multiply(centred, ops.power(ops.add(variance, EPSILON), -0.5))
    units = ops.relu(ops.add(ops.multiply(normalised, scale), shift))
    return ops.cross_entropy(ops.add(ops.matmul(units, weight), bias), labels)


def loss(ops: Ops) -> Callable[[Array, Array, Array], Array]:
    """Make the function (parameters, x, labels) -> sum of the losses.

    (n, 64) → dense → batch normalisation → ReLU → dense → (n, 10). The statistics are those of the
    n rows.
    """
    forward = with_sums(ops)

    def apply(parameters: Array, x: Array, labels: Array) -> Array:
        z, sums = forward(parameters, x)
        return loss_of_normalised(ops, parameters, z, sums, x.shape[0], labels)

    return apply


def by_the_rest(ops: Ops, rows: int) -> Callable[..., Array]:
    """Make the function from the losses back to z and its sums.

    (parameters, z, sums over the rows of all devices, labels) -> (gradients by all parameters but
    the first, gradient by z, gradients by the sums), all of them of the losses of z's rows.
    """

    def loss_of_leaves(leaves: Array, labels: Array) -> Array:
        scale, shift, weight, bias, z, *sums = leaves
        parameters = (None, scale, shift, weight, bias)
        return loss_of_normalised(ops, parameters, z, sums, rows, labels)

    differentiate = ops.value_and_grad(loss_of_leaves)

    def back(parameters: Array, z: Array, sums: Array, labels: Array) -> Array:
        _first_weight, *others = parameters
        _, gradients = differentiate((*others, z, *sums), labels)
        *by_others, by_z, by_sum, by_sum_of_squares = gradients
        return tuple(by_others), by_z, (by_sum, by_sum_of_squares)

    return back


def by_first_weight(ops: Ops) -> Callable[..., Array]:
    """Make the function from z and its sums back to the first weight.

    (parameters, x, gradient by z, gradients by the sums) -> gradient by the first weight. The
    gradient comes through z itself and through both sums; z is computed again.
    """

    def inner_product(first_parameter: Array, x: Array, *upstream: Array) -> Array:
        """Return the sum of the products of z and its sums with the gradients by them.

        Its gradient by the first weight is that of the losses.
        """
        z, sums = with_sums(ops)(first_parameter, x)
        products = [
            ops.total(ops.multiply(result, gradient))
            for result, gradient in zip((z, *sums), upstream, strict=True)
        ]
        through_z, through_sum, through_sum_of_squares = products
        return ops.add(through_z, ops.add(through_sum, through_sum_of_squares))

    differentiate = ops.value_and_grad(inner_product)

    def back(parameters: Array, x: Array, by_z: Array, by_sums: Array) -> Array:
        _, (by_weight,) = differentiate(parameters[:1], x, by_z, *by_sums)
        return by_weight

    return back


def strategies(rows: int) -> dict[str, Strategy]:
    """Return the two ways to take a step of `rows` over all devices, by name."""
    return {
        PER_DEVICE: Strategy(step_by(of_own_rows(loss))),
        SYNCHRONISED: Strategy(step_by(partial(synchronised, rows))),
    }


def in_single_precision(name: str, rows: int) -> Program:
    """Make the program of a strategy's step in float32, of `rows` over all devices."""
    strategy = strategies(rows)[name]
    return strategy.in_single_precision(initial_parameters(), synthetic_batch(rows), RATE / rows)


def initial_parameters(seed: int = 0) -> tuple[np.ndarray, ...]:
    """Draw float64 weights of variance 1 / inputs; the scale is 1, shift and bias are 0."""
    generator = np.random.default_rng(seed)
    first = generator.standard_normal((INPUTS, UNITS)) / INPUTS**0.5
    second = generator.standard_normal((UNITS, CLASSES)) / UNITS**0.5
    return first, np.ones(UNITS), np.zeros(UNITS), second, np.zeros(CLASSES)


def synthetic_batch(rows: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draw float64 inputs (rows, 64), and labels: the classes that a linear map scores highest."""
    x = np.random.default_rng(seed).standard_normal((rows, INPUTS))
    scores = x @ np.random.default_rng(0).standard_normal((INPUTS, CLASSES))
    return x, scores.argmax(axis=1).astype(np.int32)


def differing(name: str, rounding: str, different: str) -> Metric:
    """Declare the metric of a step's difference, with the meanings of rounding and of more."""
    bands = (Band(LOWEST, "rounding", rounding), Band(ROUNDING, "different", different))
    return Metric(name, bands=bands, in_percent=True)


BY_DEVICE = differing(
    "per_device_difference_fraction",
    "With statistics of each device's rows a step was that of one device",
    "With statistics of each device's rows a step differed from that of one device",
)

EXPERIMENT = Experiment(
    name="batch-norm",
    question="Whose statistics normalise a divided batch?",
    position=7,
    remark="the remark on batch normalization",
    program=program,
    case="synchronised statistics, 64 rows",
    answer=answer_by(BY_DEVICE),
    metrics=(
        Metric(
            "synchronising_cost",
            means="a step's time with statistics of all rows over that with each device's own: 1 "
            "is no cost",
            bands=(
                Band(LOWEST, "faster", "A step was faster with synchronised statistics"),
                Band(0.9, "equal", "Synchronising the statistics cost little or nothing"),
                Band(1.1, "slower", "Synchronising the statistics made a step slower"),
            ),
        ),
        BY_DEVICE,
        differing(
            "synchronised_difference_fraction",
            "With statistics of all rows a step was that of one device, but for rounding",
            "With statistics of all rows a step differed from that of one device",
        ),
    ),
    changes=(
        LESS_NOISE,
        larger(
            "rows",
            "More rows per device",
            "their statistics are nearer to those of all rows, and waits weigh less",
        ),
    ),
    curves=Curves(
        over="rows",
        quantity="difference",
        x_title="rows per device",
        y_title="difference of a step",
        log_y=True,
        in_place_of_times=False,
        caption="How far a step with statistics of each device's rows is from the step of one "
        "device, as a "
        "share of the largest change.",
    ),
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "rows": 64}},
)
