"""What labs must say of times whose truth is known, and what they must not: `lab_self_test` counts how often they err.

Equal times leave nothing to say, and effects are there to be found. Every sentence that claims a direction stands here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import eager_cpu
from parallel_core.experiments.asynchronous_computation.asynchronous import verdicts as asynchronous
from parallel_core.experiments.asynchronous_computation.barriers import verdicts as barriers
from parallel_core.experiments.asynchronous_computation.cost_model import verdicts as cost_model
from parallel_core.experiments.asynchronous_computation.increments import CostModel
from parallel_core.experiments.automatic_parallelism import dependencies, overlap, parallel, scheduling, three_way
from parallel_core.experiments.automatic_parallelism.independent_ops import verdicts as independent_ops
from parallel_core.experiments.automatic_parallelism.small_ops import verdicts as small_ops
from parallel_core.experiments.training_on_multiple_gpus.allreduce import verdicts as allreduce
from parallel_core.experiments.training_on_multiple_gpus.allreduce.parts import ONE_ROOT, SPREAD_ROOTS
from parallel_core.experiments.training_on_multiple_gpus.batch_norm import verdicts as batch_norm
from parallel_core.experiments.training_on_multiple_gpus.partitioning import verdicts as partitioning
from parallel_core.measurement.checks import why_impossible
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.task_graph import Bounds
from parallel_core.measurement.verdicts import BETWEEN_PROCESSES, dispatch_fraction, times_as_long

__all__ = ["TRUTHS", "Timed", "Truth"]

Timed = Mapping[str, Case]
ANY_RESULT = Result("any", {"engine": "async", "devices": ["cpu:1", "cpu:2"]}, {}, (), {}, {}, "", environment={})
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


def _code(experiment: str, figure: str, interval: Interval) -> str:
    """Return the code of the band in which a figure lies; empty if that stays open."""
    band = EXPERIMENTS[experiment].metric_named(figure).place(interval, ANY_RESULT)
    return "" if band is None else band.code


def _parallel(cases: Timed) -> str:
    *parts, together = cases.values()
    return parallel.verdict(parallel.speedup_of(parts, together), len(parts))


def _overlap(cases: Timed) -> str:
    return overlap.verdict(overlap.overlap_efficiency(*cases.values()), "async")


def _three_way(cases: Timed) -> str:
    *parts, together = cases.values()
    # Three parts that keep a core busy each, on two cores.
    bound = sum(part.median for part in parts) / 2
    found = three_way.fractions(parts, together, bound)
    return three_way.verdict(found, three_way.left_over(parts, together, bound))


def _limited(cases: Timed) -> str:
    *parts, together = cases.values()
    # Parts that keep half a core busy each leave it to the longest one; those that keep two busy each do not.
    bound = sum(part.median for part in parts) * (0.25 if "long" in cases else 1)
    found = three_way.fractions(parts, together, bound)
    return three_way.about_cores(found, three_way.lost_to_cores(parts, bound), 2.0)


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
    half = len(each) // 2
    sizes, alone, spread = [2**power for power in range(3, 3 + half)], each[:half], each[half:]
    said = small_ops.verdict(sizes, alone, spread, 2), *small_ops.about_losses(sizes, alone, spread)
    return " ".join((*said, *small_ops.about_launching(sizes, alone, "async")))


def _launches(cases: Timed) -> str:
    each = list(cases.values())
    half = len(each) // 2
    return " ".join(small_ops.about_threads([2**power for power in range(3, 3 + half)], each[:half], each[half:]))


def _independent_ops(cases: Timed) -> str:
    few, many, chain = cases.values()
    by_workers = times_as_long(few, many, BETWEEN_PROCESSES)
    said = independent_ops.verdict(few, chain, 1), independent_ops.about_workers("async", "cpu", by_workers, (1, 2))
    return " ".join((*said, independent_ops.about_chain(times_as_long(chain, chain, BETWEEN_PROCESSES))))


def _threads(cases: Timed) -> str:
    return independent_ops.about_threads(times_as_long(*cases.values(), BETWEEN_PROCESSES))


def _schedule(cases: Timed) -> str:
    return scheduling.about_schedule("It", _scheduled(*cases.values()))


def _scheduled(alone: Case, free: Case) -> scheduling.Scheduled:
    bound = alone.median / 2
    return scheduling.Scheduled(alone, free, (), Bounds(bound, bound, bound))


def _random_graphs(cases: Timed) -> str:
    each = list(cases.values())
    return dependencies.about_random([_scheduled(*pair) for pair in zip(each[::2], each[1::2], strict=True)])


def _batch_scaling(cases: Timed) -> str:
    one, fixed, scaled = cases.values()
    figures = {
        "scaled_batch_speedup": times_as_long(fixed, scaled),
        "fixed_batch_scaling_efficiency": _over(times_as_long(one, fixed), 2),
        "scaled_batch_scaling_efficiency": _over(times_as_long(one, scaled), 2),
    }
    return " ".join(f"{name} {_code('batch-scaling', name, interval)}" for name, interval in figures.items())


def _over(interval: Interval, devices: int) -> Interval:
    return Interval(interval.estimate / devices, interval.low / devices, interval.high / devices)


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
    return _code("evaluate", "evaluation_speedup", times_as_long(*cases.values()))


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
TURNS, AT_ONCE = "took turns", "worked at the same time"

TRUTHS = (
    Truth("parallel", "turns", _of((1, 1, 2)), _parallel, ("The devices worked", "overlapped", "got in"), (TURNS,)),
    Truth("parallel", "at once", _of((1, 1, 1)), _parallel, (TURNS, "in part:", "got in"), ("The devices worked",)),
    Truth("parallel", "in part", _of((1, 1, 1.45)), _parallel, (TURNS, "The devices worked", "got in")),
    Truth("overlap", "none", _of((1, 1, 2)), _overlap, ("real", "hidden", "took longer")),
    Truth("overlap", "all", _of((1, 1, 1)), _overlap, ("Nothing", "took longer"), ("hidden",)),
    Truth("overlap", "disturbing", _of((1, 1, 2.8)), _overlap, ("real", "hidden", "Nothing"), ("took longer",)),
    Truth("three-way", "none", _of((1, 1, 1, 3)), _three_way, ("went on", "overlapped in part", "got in")),
    Truth("three-way", "all", _of((1, 1, 1, 1.5)), _three_way, ("overlapped in part", "got in"), ("went on",)),
    Truth("three-way", "in part", _of((1, 1, 1, 2.2)), _three_way, ("more than", "got in"), ("overlapped",)),
    Truth("three-way", "few cores", _of((1, 1, 1, 3)), _limited, ("The longest part limits",), ("with the time of",)),
    Truth(
        "three-way",
        "enough cores",
        {"long": 2, "b": 1, "c": 1, "all": 4},
        _limited,
        ("with the time of",),
        ("The longest part limits",),
    ),
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
    Truth("evaluate", "equal", _of((1, 1)), _evaluate, ("slower", "faster")),
    Truth("evaluate", "twice", _of((2, 1)), _evaluate, ("slower",), ("faster",)),
    Truth("allreduce", "equal roots", {ONE_ROOT: 1, SPREAD_ROOTS: 1}, _roots, ("all do at", "costs more")),
    Truth("allreduce", "spread roots", {ONE_ROOT: 2, SPREAD_ROOTS: 1}, _roots, ("costs more",), ("all do at",)),
    Truth(
        "small-ops",
        "equal",
        _of([1] * 16),
        _small_ops,
        ("were faster than one from", "They were slower", "launching is the limit"),
        ("Launching alone was nowhere the limit",),
    ),
    Truth("small-ops", "slower", _of([1] * 8 + [2] * 8), _small_ops, ("faster than one from",), ("They were slower",)),
    Truth("small-ops", "launches as operators", _of([1] * 16), _launches, ("beat parallel",), ("At none of 8",)),
    Truth(
        "small-ops",
        "launches beat operators",
        _of([1] * 8 + [2] * 8),
        _launches,
        ("operators beat", "At none"),
        ("launches beat parallel operators",),
    ),
    Truth(
        "small-ops",
        "faster",
        _of([2] * 8 + [1] * 8),
        _small_ops,
        ("They were slower",),
        ("the smallest size",),
    ),
    Truth(
        "independent-ops",
        "in order",
        _of((1, 1, 1)),
        _independent_ops,
        ("In parallel", "they ran at", "no help", "costs something", "does not allow", "too little"),
        ("In order",),
    ),
    Truth(
        "independent-ops",
        "two workers",
        _of((2, 1, 2)),
        _independent_ops,
        ("In parallel", "no help", "too little", "does not allow"),
        ("they ran at",),
    ),
    Truth("independent-ops", "equal threads", _of((1, 1)), _threads, (" × as fast.",), ("no difference is shown",)),
    Truth("independent-ops", "twice the threads", _of((2, 1)), _threads, (), (" × as fast.",)),
    Truth(
        "dependencies",
        "random graphs in turn",
        _of([1] * 6),
        _random_graphs,
        ("in 1 of", "in 2 of", "in 3 of", "not to pay in"),
        ("in 0 of",),
    ),
    Truth(
        "dependencies", "random graphs", _of([2, 1] * 3), _random_graphs, ("not to pay in", "in 0 of"), ("in 3 of 3",)
    ),
    Truth("dependencies", "in turn", _of((2, 2)), _schedule, ("about as fast", "less than is", "one by one: queueing")),
    Truth(
        "dependencies", "at the bound", _of((2, 1)), _schedule, ("less than is", "not pay"), ("about as fast", "paid")
    ),
    Truth("batch-scaling", "equal", _of((2, 1, 1)), _batch_scaling, ("more", "less", "hindered", "serial", "partly")),
    Truth("batch-scaling", "more", _of((2, 1.6, 1)), _batch_scaling, ("less", "hindered", "serial"), ("more",)),
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
