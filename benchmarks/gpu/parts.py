"""A part of the check: its place and its result, and the process of its own that it runs in, within its time.

CUDA code that hangs or crashes takes one part with it.
"""

import importlib
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import numpy as np

import backends
from backends import Backend, BackendError
from backends.devices import DeviceKind
from benchmarks.harness.targets import Finding, by_round
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Case, Timing
from parallel_core.system.machine import describe_machine

LIMIT_SECONDS = 60.0
"""For a part, and for loading the framework."""
MIN_SECONDS = 5.0
"""With less left than this, nothing is begun."""


@dataclass(frozen=True)
class Place:
    """What to measure on: a framework's GPU, or its CPU devices to rehearse on, with next to no work."""

    framework: str
    kind: DeviceKind
    rounds: int

    def load(self, *variants: str) -> Backend:
        """Load the framework on one GPU; in a rehearsal on two CPU devices, the second of which stands for the host."""
        count = 1 if self.kind == "gpu" else 2
        return backends.load(self.framework, count, self.kind, "async", 1, variants=variants)

    def load_two_streams(self, *variants: str) -> Backend:
        """Load the framework on two streams of one GPU as its devices; in a rehearsal on two CPU devices."""
        if self.kind == "gpu":
            return backends.load(self.framework, devices=["gpu:0/0", "gpu:0/1"], engine="async", variants=variants)
        return self.load(*variants)


@dataclass(frozen=True)
class PartResult:
    """The result of a part. `problems` are wrong results and failures, `skipped` the reasons for what is missing."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    cases: Sequence[Case] = ()
    """The times behind the findings, by what was timed."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that the file holds of a part."""
        return {
            "findings": [finding.as_json() for finding in self.findings],
            "notes": list(self.notes),
            "problems": list(self.problems),
            "skipped": list(self.skipped),
            "parameters": dict(self.parameters),
            "seconds": {case.name: list(case.seconds) for case in self.cases},
        }


def run_part(function: str, place: Place, seconds: float, limit: float = LIMIT_SECONDS) -> PartResult:
    """Run `module:function`, which takes a place and returns a result, in a process that may take so many seconds."""
    if seconds < MIN_SECONDS:
        return PartResult(skipped=("no time was left",))
    allowed = min(limit, seconds)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(function, place, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(allowed):
            return PartResult(problems=(f"stopped: it was not done after {allowed:.0f} s",))
        result: PartResult = ours.recv()
        return result
    except EOFError:
        process.join()
        return PartResult(problems=(f"the process ended with status {process.exitcode}",))
    finally:
        process.kill()
        process.join()
        ours.close()


def _work(function: str, place: Place, connection: Connection) -> None:
    module, _, name = function.partition(":")
    try:
        outcome = getattr(importlib.import_module(module), name)(place)
    except BackendError as error:
        outcome = PartResult(skipped=(str(error),))
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "no reason given")
        outcome = PartResult(problems=(f"{type(error).__name__}: {reason}",))
    connection.send(outcome)


def try_out(place: Place) -> PartResult:
    """Compute something on the device: a framework can be installed and hold no code for this GPU."""
    backend = place.load()
    total = backend.to_numpy(backend.launch(backend.ops.total, backend.asarray(np.ones(2), backend.devices[0])))
    return PartResult(parameters={"version": backend.version}, problems=() if total == 2 else (f"1 + 1 is {total}",))


def describe(place: Place) -> PartResult:
    """Name the device and all versions; a problem if there is no GPU."""
    from benchmarks.plain import torch_gpu

    machine: dict[str, Any] = {**describe_machine(), "torch": torch_gpu.version()}
    if place.kind == "cpu":
        return PartResult(parameters={**machine, "device": "CPU devices"})
    if not torch_gpu.has_gpu():
        return PartResult(problems=(f"there is no GPU to check: torch {torch_gpu.version()} finds none",))
    return PartResult(parameters={**machine, **torch_gpu.describe_gpu()})


def timed(fn: Callable[[], object], wait: Callable[[], object], repeats: int = 1) -> Timing:
    """Run `fn` when nothing else runs; return seconds until control returned and until `wait` did, over repeats."""
    wait()
    start = perf_counter()
    fn()
    dispatched = perf_counter()
    wait()
    return (dispatched - start) / repeats, (perf_counter() - start) / repeats


def rate(case: Case, amount: float) -> Interval:
    """Return an amount of work over a case's seconds."""
    return by_round(lambda seconds: amount / seconds, case.seconds)


def times_as_fast(case: Case, other: Case, amount: float = 1.0) -> Interval:
    """Return how many times as fast as another a case is, which does so many times its work."""
    return by_round(lambda mine, theirs: amount * theirs / mine, case.seconds, other.seconds)
