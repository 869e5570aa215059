"""What our verbs cost: the work of chapters 1 and 2 through them, against the same work written
directly in the framework; `speed` compares trainings.

Our synchronous PyTorch is compared with plain eager PyTorch, our MXNet with plain MXNet, which
queues work by itself, and our asynchronous PyTorch with the standard library's way to the same
asynchrony: an executor of one thread a device. Eager PyTorch, which queues nothing, is shown beside
it, with a target for tiny operations alone: in a queue of Python's threads such an operation
(x + 1) costs what Python does for it on both threads, one after the other, because the GIL lets one
of them run at a time. Ours also finds the device, counts readers (a later copy may overwrite what
they read), passes on errors and compares memory.
"""

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import Variant, paired, take_turns, worker
from benchmarks.harness.targets import Finding, Target
from benchmarks.workers.abstraction import WORKS

TINY = "increments"
"""The work of which each operation is tiny."""


class Side(NamedTuple):
    """What our verbs are compared with on a backend and engine."""

    backend: str
    engine: str
    side: str
    """The worker's word for it."""
    title: str
    most_for_tiny: float
    """The target of the ratio of times of tiny operations, and below that of all others."""
    most: float | None

    @property
    def cell(self) -> str:
        """The backend and the engine."""
        return f"{self.backend} {self.engine}"

    def target_of(self, work: str) -> Target | None:
        """Return the target of a work; None if the other side does something else."""
        bound = self.most_for_tiny if work == TINY else self.most
        return None if bound is None else Target("at most", bound)


SIDES = (
    Side("mxnet", "async", "plain", "plain MXNet", 1.05, 1.02),
    Side("torch", "sync", "plain", "plain eager PyTorch", 1.05, 1.02),
    Side("torch", "async", "executors", "executors of one thread", 1.05, 1.02),
    Side("torch", "async", "plain", "plain eager PyTorch", 1.5, None),
)
AMOUNTS = {"increments": 10_000, "repetitions": 9}
QUICK_AMOUNTS = {"increments": 1000, "repetitions": 2}


def measure(request: Request) -> Iterator[Report]:
    """Time each work on all sides, in turn in the same processes."""
    amounts = QUICK_AMOUNTS if request.quick else AMOUNTS
    variants = {}
    for side in SIDES:
        command = worker("abstraction", backend=side.backend, engine=side.engine, **amounts)
        variants[side.cell] = Variant(side.cell, command)
    processes = take_turns([*variants.values()], request.rounds)
    findings = []
    for side in SIDES:
        for work in WORKS:
            ratio = paired(processes[side.cell], f"{work}, ours", f"{work}, {side.side}")
            name = f"{side.cell}: {work}, ours / {side.title}"
            findings.append(Finding(name, ratio, target=side.target_of(work)))
    yield Report(findings, processes, parameters=amounts)


MEASUREMENT = Measurement(
    file="abstraction",
    title="No cost for the abstraction",
    question="How much longer does work take through our verbs than in plain framework code?",
    method=Method(2, "2026-11-29", "neither a bare queue nor epochs are timed in turn"),
    measure=measure,
)
