"""The bus: copies between page-locked memory and the GPU, against the largest plain copy of the same run."""

from collections.abc import Callable
from functools import partial

import numpy as np

from backends import HOST, Array, Backend, Device
from benchmarks.gpu.part import PartResult, Place, load_one
from benchmarks.gpu.timing import by_round, rate, seconds_of, timed
from benchmarks.harness.targets import Finding, Target
from benchmarks.plain import torch_gpu
from parallel_core.measurement.result import Timing
from parallel_core.measurement.timing import interleave

__all__ = ["measure"]

TARGET = Target("at least", 0.9)
LARGEST = {"gpu": 2**30, "cpu": 2**16}
"""Bytes of the plain copy, whose rate stands for the bus; and of ours together."""
COPIES = 4
"""Ours, one after another: as many bytes in a timing as the plain one."""


def measure(place: Place) -> PartResult:
    """Time copies in both directions, ours and the plain one in turn."""
    backend = load_one(place)
    device, host = backend.devices[0], HOST if place.kind == "gpu" else backend.devices[1]
    amount = LARGEST[place.kind]
    values = np.random.default_rng(0).integers(0, 256, amount // COPIES, dtype=np.uint8)
    on_host, on_device = backend.asarray(values, host), backend.asarray(values, device)
    received, returned = [backend.copy_to(on_host, device)], [backend.copy_to(on_device, host)]
    plain_host, plain_device = torch_gpu.host_buffer(amount, place.kind)
    gib = f"{amount / 2**30:.3g} GiB"

    def plain(source: Array, destination: Array) -> Callable[[], Timing]:
        return partial(timed, partial(torch_gpu.copy, source, destination), torch_gpu.synchronize)

    cases = interleave(
        {
            "host to device": ours(backend, on_host, device, received),
            f"host to device, plain torch, {gib}": plain(plain_host, plain_device),
            "device to host": ours(backend, on_device, host, returned),
            f"device to host, plain torch, {gib}": plain(plain_device, plain_host),
        },
        place.rounds,
    )
    findings = []
    for own, bus in (cases[:2], cases[2:]):
        findings += [
            Finding(f"page-locked copy, {own.name}", rate(own, amount / 1e9), "GB/s"),
            Finding(f"page-locked copy, {bus.name}: the bus", rate(bus, amount / 1e9), "GB/s"),
            Finding(f"{own.name}: ours / the bus", by_round(lambda own, bus: bus / own, own, bus), "", TARGET),
        ]
    problems = [
        f"{name} arrived altered"
        for name, (copied,) in (("what went to the device", received), ("what came to the host", returned))
        if not np.array_equal(backend.to_numpy(copied), values)
    ]
    return PartResult(
        findings=tuple(findings),
        problems=tuple(problems),
        parameters={"bytes in a timing": amount, "our copies in a timing": COPIES},
        seconds=seconds_of(cases),
    )


def ours(backend: Backend, x: Array, device: Device, buffer: list[Array]) -> Callable[[], Timing]:
    """Make what times our copies to a device, into the memory of the only item of `buffer`."""

    def copies() -> None:
        for _ in range(COPIES):
            buffer[0] = backend.copy_to(x, device, out=buffer[0])

    return partial(timed, copies, backend.waitall)
