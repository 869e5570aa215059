"""What labs must say of times whose truth is known, and what they must not: `lab_self_test` counts how often they err.

Equal times leave nothing to say, and effects are there to be found. Every sentence that claims a direction stands here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import eager_cpu
from parallel_core.experiments.asynchronous_computation.asynchronous import verdicts as asynchronous
from parallel_core.experiments.asynchronous_computation.barriers import verdicts as barriers
from parallel_core.experiments.asynchronous_computation.cost_model import verdicts as cost_model
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.experiments.automatic_parallelism.small_ops import crossing_size
from parallel_core.experiments.runner.metrics import interval_of
from parallel_core.experiments.training_on_multiple_gpus.allreduce import verdicts as allreduce
from parallel_core.experiments.training_on_multiple_gpus.allreduce.parts import ONE_ROOT, SPREAD_ROOTS
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import verdicts as batch_norm
from parallel_core.experiments.training_on_multiple_gpus.batch_scaling import verdicts as batch_scaling
from parallel_core.experiments.training_on_multiple_gpus.evaluate import verdicts as evaluate
from parallel_core.experiments.training_on_multiple_gpus.partitioning import verdicts as partitioning
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import FIXED, SCALED
from parallel_core.measurement.checks import why_impossible
from parallel_core.measurement.confidence_intervals import Interval, exponential
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES, dispatch_fraction, over_rounds, times_as_long

__all__ = ["TRUTHS", "Timed", "Truth"]

Timed = Mapping[str, Case]
ANY_RESULT = Result(
    "any",
    {"engine": "async", "devices": ["cpu:1", "cpu:2"]},
    {"workers": "1,2"},
    (),
    # Three parts that keep a core busy each, on two cores.
    {"possible_on_cores_fraction": 0.5},
    {},
    "",
    environment={},
)
"""Of an engine that queues, on two devices: what decides what is possible."""


@dataclass(frozen=True)
class Truth:
    """Usual seconds of cases, what a lab says of them, and which phrases of it are false or must be said."""

    lab: str
    name: str
    seconds: Mapping[str, float]
    tell: Callable[[Timed], str]
    false: tuple[str, ...]
    found: tuple[str, ...] = ()


def _code(experiment: str, figure: str, interval: Interval | None) -> str:
    """Return the code of the band in which a figure lies; empty if that stays open."""
    assert interval is not None
    band = EXPERIMENTS[experiment].metric_named(figure).place(interval, ANY_RESULT)
    return "" if band is None else band.code


def _together(experiment: str) -> Callable[[Timed], str]:
    """Return what an experiment says of parts and of all of them together, which is the last case."""
    main = EXPERIMENTS[experiment].metrics[0]
    case = EXPERIMENTS[experiment].case

    def tell(cases: Timed) -> str:
        *parts, together = cases.values()
        names = ("run", "copy") if experiment == "overlap" else tuple(cases)[:-1]
        timed = dict(zip(names, parts, strict=True)) | {case: replace(together, parts=names)}
        return _code(experiment, main.name, main.measured(timed))

    return tell


def _asynchronous(cases: Timed) -> str:
    each, once, one, everything = cases.values()
    said = asynchronous.verdict(dispatch_fraction(once), times_as_long(each, once))
    return f"{said} {asynchronous.about_barriers(times_as_long(one, everything))}"


def _eager(cases: Timed) -> str:
    (case,) = cases.values()
    return eager_cpu.verdict(dispatch_fraction(case))


def _barriers(cases: Timed) -> str:
    one, everything = cases.values()
    added = barriers.Added(one.seconds, everything.seconds)
    return barriers.verdict(added, "here", dispatch_fraction(everything))


def _cost_model(cases: Timed) -> str:
    issued, computed, measured = cases.values()
    parts = (issued.seconds, computed.seconds)
    model = CostModel(issued.median, computed.median, 0.0, times_as_long(computed, issued), *parts)
    point = cost_model.Point(2, 10**6, model, measured)
    return " ".join((cost_model.verdict([point]), cost_model.about_book(point), asynchronous.about_sides(model)))


def _small_ops(cases: Timed) -> str:
    each = list(cases.values())
    alone, spread = each[: len(each) // 2], each[len(each) // 2 :]
    crossing = crossing_size([2**power for power in range(3, 3 + len(alone))], alone, spread)
    code = _code("small-ops", "small_speedup", times_as_long(alone[0], spread[0]))
    return code if crossing is None else f"{code} and crosses"


def _launches(cases: Timed) -> str:
    spread, threaded = cases.values()
    return _code("small-ops", "small_advantage_over_threads", times_as_long(threaded, spread, BETWEEN_PROCESSES))


def _independent_ops(cases: Timed) -> str:
    few, many, chain = cases.values()
    by_workers = _code("independent-ops", "parallel_speedup", times_as_long(few, many, BETWEEN_PROCESSES))
    return f"{by_workers} and {_code('independent-ops', 'independence_speedup', times_as_long(chain, few))}"


def _threads(cases: Timed) -> str:
    return _code("independent-ops", "threads_speedup", times_as_long(*cases.values(), BETWEEN_PROCESSES))


def _schedule(cases: Timed) -> str:
    separate, free = cases.values()
    # Half of the operations are a chain.
    fraction = interval_of(lambda times: times[separate.name] / times[free.name] / 2, cases, ratio=True)
    paid = _code("dependencies", "speedup", times_as_long(separate, free))
    return f"{_code('dependencies', 'bound_fraction', fraction)} and {paid}"


def _batch_scaling(cases: Timed) -> str:
    one, fixed, scaled = cases.values()
    by_image = {FIXED: {1: one, 2: fixed}, SCALED: {1: one, 2: scaled}}
    return f"{batch_scaling.verdict(by_image, 256)} {batch_scaling.about_efficiency(by_image)}"


def _allreduce(cases: Timed) -> str:
    sizes = {2**20: cases}
    return " ".join(
        (allreduce.about_size(2**20, cases), allreduce.about_bound(sizes, "native"), *allreduce.about_sharding(sizes))
    )


def _batch_norm(cases: Timed) -> str:
    per_device, synchronised = cases.values()
    return batch_norm.about_cost(per_device, synchronised, 64)


def _partitioning(cases: Timed) -> str:
    whole = partitioning.about_micro_batches(cases["whole"], cases["cut"], 1, 4)
    return f"{partitioning.about_width(1, cases, 'one')} {whole}"


def _evaluate(cases: Timed) -> str:
    one, two = cases.values()
    by_count = {1: one, 2: two}
    speeds = {
        devices: exponential(over_rounds(lambda seconds: np.log(1 / seconds), case.seconds))
        for devices, case in by_count.items()
    }
    return evaluate.about_speed(speeds, times_as_long(one, two), None)


def _roots(cases: Timed) -> str:
    return allreduce.about_roots(2**20, cases)


def _predictions(cases: Timed) -> str:
    issued, computed, measured = cases.values()
    parts = (issued.seconds, computed.seconds)
    model = CostModel(issued.median, computed.median, 0.0, times_as_long(computed, issued), *parts)
    return " ".join(cost_model.about_predictions([cost_model.Point(2, 10**6, model, measured)], ["a core"]))


def _possible(cases: Timed) -> str:
    *parts, together = cases.values()
    return why_impossible(together, parts) or ""


def _of(seconds: Sequence[float], names: str = "abcdefghijklmnop") -> dict[str, float]:
    return dict(zip(names, seconds, strict=False))


ALGORITHMS = ("plain copy", "star", "ring", "sharded", "native")
DIVIDED = ("one", "whole", "cut", "data parallelism")
MORE, LESS = "devices worth more", "devices worth less"

TRUTHS = (
    Truth("parallel", "turns", _of((1, 1, 2)), _together("parallel"), ("parallel", "partly", "hindered"), ("serial",)),
    Truth("parallel", "at once", _of((1, 1, 1)), _together("parallel"), ("serial", "hindered"), ("parallel",)),
    Truth("parallel", "in part", _of((1, 1, 1.4)), _together("parallel"), ("serial", "parallel", "hindered")),
    Truth("overlap", "none", _of((1, 1, 2)), _together("overlap"), ("hidden", "partly", "hindered"), ("serial",)),
    Truth("overlap", "all", _of((1, 1, 1)), _together("overlap"), ("serial", "hindered"), ("hidden",)),
    Truth("overlap", "disturbing", _of((1, 1, 2.8)), _together("overlap"), ("serial", "hidden"), ("hindered",)),
    Truth("three-way", "none", _of((1, 1, 1, 3)), _together("three-way"), ("parallel", "partly"), ("serial",)),
    Truth("three-way", "all", _of((1, 1, 1, 1.5)), _together("three-way"), ("serial", "hindered"), ("parallel",)),
    Truth("three-way", "in part", _of((1, 1, 1, 2.2)), _together("three-way"), ("serial", "parallel", "hindered")),
    Truth(
        "async",
        "queued",
        {"each": 4.0, "once": 2.0, "one": 0.1, "all": 1.0},
        _asynchronous,
        ("Nothing was queued", "in part", "nothing went on"),
        ("Python ran ahead:",),
    ),
    Truth(
        "async",
        "not queued",
        {"each": 2.0, "once sync": 2.0, "one": 1.0, "all": 1.0},
        _asynchronous,
        ("Python ran ahead:", "in part", ": the rest went on"),
        ("Nothing was queued",),
    ),
    Truth("eager-cpu", "queued", {"products": 1.0}, _eager, ("No asynchrony", "in part"), ("Asynchrony:",)),
    Truth("eager-cpu", "not queued", {"sync": 1.0}, _eager, ("Asynchrony",), ("No asynchrony",)),
    Truth("barriers", "selective", _of((0.05, 1)), _barriers, ("was waiting", "in part"), ("was selective:",)),
    Truth("barriers", "all", _of((1, 1)), _barriers, ("was selective",), ("was waiting",)),
    Truth(
        "cost-model",
        "equal",
        _of((1, 1, 1)),
        _cost_model,
        ("slower side at the largest", "holds at every size", "it says too", "is the slower side,"),
    ),
    Truth(
        "cost-model",
        "device",
        _of((1, 2, 2)),
        _cost_model,
        ("Python is the slower side", "it says too"),
        ("holds at every",),
    ),
    Truth(
        "cost-model",
        "Python",
        _of((2, 1, 2)),
        _cost_model,
        ("holds at every", "device is the slower side", "it says too much"),
        ("it says too little, for t1 is",),
    ),
    Truth("cost-model", "as predicted", _of((1, 2, 2)), _predictions, ("The model fails",), ("At no size",)),
    Truth("cost-model", "disturbed", _of((1, 2, 3.5)), _predictions, (), ("The model fails",)),
    Truth("evaluate", "equal", _of((1, 1)), _evaluate, ("2 devices were",)),
    Truth("evaluate", "twice", _of((2, 1)), _evaluate, ("were slower",), ("2 devices were",)),
    Truth("allreduce", "equal roots", {ONE_ROOT: 1, SPREAD_ROOTS: 1}, _roots, ("all do at", "costs more")),
    Truth("allreduce", "spread roots", {ONE_ROOT: 2, SPREAD_ROOTS: 1}, _roots, ("costs more",), ("all do at",)),
    Truth("small-ops", "equal", _of([1] * 16), _small_ops, ("hindered", "partly", "parallel", "crosses"), ("no-help",)),
    Truth("small-ops", "slower", _of([1] * 8 + [2] * 8), _small_ops, ("parallel", "crosses"), ("hindered",)),
    Truth(
        "small-ops", "faster", _of([2] * 8 + [1] * 8), _small_ops, ("hindered", "no-help"), ("parallel and crosses",)
    ),
    Truth("small-ops", "launches as operators", _of((1, 1)), _launches, ("launches", "operators"), ("neither",)),
    Truth("small-ops", "launches beat operators", _of((1, 2)), _launches, ("operators", "neither"), ("launches",)),
    Truth(
        "independent-ops",
        "in order",
        _of((1, 1, 1)),
        _independent_ops,
        ("hindered", "partly", "parallel"),
        ("serial and in-order",),
    ),
    Truth(
        "independent-ops",
        "two workers",
        _of((2, 1, 2)),
        _independent_ops,
        ("hindered", "serial", "and parallel"),
        ("parallel and in-order",),
    ),
    Truth("independent-ops", "equal threads", _of((1, 1)), _threads, ("faster", "slower"), ("unchanged",)),
    Truth("independent-ops", "twice the threads", _of((2, 1)), _threads, ("unchanged", "slower"), ("faster",)),
    Truth("dependencies", "in turn", _of((2, 2)), _schedule, ("near", "beyond", "cost", "paid"), ("no-difference",)),
    Truth("dependencies", "at the bound", _of((2, 1)), _schedule, ("slower", "beyond", "cost"), ("near and paid",)),
    Truth("batch-scaling", "equal", _of((2, 1, 1)), _batch_scaling, (MORE, LESS, "less than", "not each", "and more")),
    Truth("batch-scaling", "more", _of((2, 1.6, 1)), _batch_scaling, (LESS, "less than", "and more"), (MORE,)),
    Truth(
        "allreduce",
        "equal",
        dict.fromkeys(ALGORITHMS, 1.0),
        _allreduce,
        ("as fast as the star", "no bound here", "the work paid", "than it saved"),
    ),
    Truth(
        "allreduce",
        "sharded",
        {**dict.fromkeys(ALGORITHMS, 2.0), "sharded": 1.0},
        _allreduce,
        ("no bound here", "than it saved"),
        ("the work paid",),
    ),
    Truth("batch-norm", "equal", _of((1, 1)), _batch_norm, ("ms more", "although")),
    Truth("batch-norm", "twice", _of((1, 2)), _batch_norm, ("although",), ("ms more",)),
    Truth(
        "partitioning",
        "equal",
        dict.fromkeys(DIVIDED, 1.0),
        _partitioning,
        ("was the fastest", "were the fastest", "faster than every", "batch paid", "than it gave"),
    ),
    Truth(
        "partitioning",
        "data parallelism",
        {**dict.fromkeys(DIVIDED, 2.0), "data parallelism": 1.0},
        _partitioning,
        ("faster than every", "batch paid", "than it gave"),
        ("data parallelism was the fastest",),
    ),
    Truth("any", "as fast as can be", _of((1, 1, 1)), _possible, ("disturbed",)),
    Truth("any", "impossible", _of((2, 2, 1)), _possible, (), ("disturbed",)),
)
