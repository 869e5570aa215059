"""What it costs to issue an operation while others are queued behind a busy device."""

from collections.abc import Iterator, Sequence

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import Measured, Variant, take_turns, worker
from benchmarks.harness.targets import Finding, Target, scaled
from parallel_core.measurement.confidence_intervals import median_interval

BACKENDS = ("mxnet", "torch")
DEPTHS = (1, 10, 100, 1000, 10_000, 100_000)
QUICK_DEPTHS = DEPTHS[:4]


def measure(request: Request) -> Iterator[Report]:
    """Measure the dispatch by queue depth on each backend."""
    depths = QUICK_DEPTHS if request.quick else DEPTHS
    variants = []
    for backend in BACKENDS:
        command = worker("queue_depth", backend=backend, depths=depths, operations=100_000)
        variants.append(Variant(f"{backend}, queue", command))
    processes = take_turns(variants, request.rounds)
    findings: list[Finding] = []
    for backend in BACKENDS:
        findings += findings_of(backend, depths, processes[f"{backend}, queue"])
    yield Report(findings, processes, parameters={"depths": depths})


def findings_of(
    backend: str, depths: Sequence[int], processes: Sequence[Measured]
) -> Iterator[Finding]:
    """List the cost at each depth, and the dearest depth over the cheapest."""
    costs_of_depths = []
    for depth in depths:
        # The fastest repetition: what wakes up beside it now and then doubles the cost of some.
        costs = [min(process.seconds[f"{depth} queued"]) for process in processes]
        costs_of_depths.append(costs)
        name = f"{backend}: issuing an operation when {depth:,} are queued"
        yield Finding(name, scaled(median_interval(costs), 1e6), "μs")
    costs_of_processes = zip(*costs_of_depths, strict=True)
    dearest = median_interval([max(costs) / min(costs) for costs in costs_of_processes])
    yield Finding(f"{backend}: dearest depth / cheapest", dearest, "×", Target("at most", 1.3))


MEASUREMENT = Measurement(
    file="queue-depth",
    title="Issuing an operation behind others",
    question="Does it cost more to issue an operation the more are queued?",
    method=Method(1, "2026-11-24", "the fastest repetition of an issue"),
    measure=measure,
)
