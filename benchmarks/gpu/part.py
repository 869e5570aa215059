"""A part of the check: its place and its result, which pass between processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import backends
from backends import Backend
from backends.devices import DeviceKind
from benchmarks.harness.targets import Finding

__all__ = ["PartResult", "Place", "load_one", "load_two_streams", "try_out"]


@dataclass(frozen=True)
class Place:
    """What to measure on: a framework's GPU, or its CPU devices to rehearse on, with next to no work."""

    framework: str
    kind: DeviceKind
    rounds: int


@dataclass(frozen=True)
class PartResult:
    """The result of a part. `problems` are wrong results and failures, `skipped` the reasons for what is missing."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The times behind the findings, by what was timed."""


def load_one(place: Place, variants: Sequence[str] = ()) -> Backend:
    """Load a framework on one GPU; in a rehearsal on two CPU devices, the second of which takes the host's place."""
    count = 1 if place.kind == "gpu" else 2
    return backends.load(place.framework, count, place.kind, "async", 1, variants=variants)


def load_two_streams(place: Place, variants: Sequence[str] = ()) -> Backend:
    """Load a framework on two streams of one GPU as its devices; in a rehearsal on two CPU devices."""
    if place.kind == "gpu":
        return backends.load(place.framework, devices=["gpu:0/0", "gpu:0/1"], engine="async", variants=variants)
    return backends.load(place.framework, 2, place.kind, "async", 1, variants=variants)


def try_out(place: Place) -> PartResult:
    """Compute something on the device: a framework can be installed and hold no code for this GPU."""
    backend = load_one(place)
    total = backend.to_numpy(backend.launch(backend.ops.total, backend.asarray(np.ones(2), backend.devices[0])))
    return PartResult(parameters={"version": backend.version}, problems=() if total == 2 else (f"1 + 1 is {total}",))
