"""The bus: copies between page-locked memory and the GPU, against the largest plain copy of the same run."""

from functools import partial

import numpy as np

from backends import HOST, Array, Device
from benchmarks.gpu.parts import PartResult, Place, rate, timed, times_as_fast
from benchmarks.harness.targets import Finding, Target
from benchmarks.plain import torch_gpu
from parallel_core.measurement.timing import interleave

TARGET = Target("at least", 0.9)
LARGEST = {"gpu": 2**30, "cpu": 2**16}
"""Bytes of the plain copy, whose rate stands for the bus; and of ours together."""
COPIES = 4
"""Ours, one after another: as many bytes in a timing as the plain one."""
TO_DEVICE, TO_HOST = "host to device", "device to host"


def measure(place: Place) -> PartResult:
    """Time copies in both directions, ours and the plain one in turn."""
    backend = place.load()
    device, host = backend.devices[0], HOST if place.kind == "gpu" else backend.devices[1]
    amount = LARGEST[place.kind]
    values = np.random.default_rng(0).integers(0, 256, amount // COPIES, dtype=np.uint8)
    on_host, on_device = backend.asarray(values, host), backend.asarray(values, device)
    arrived = {TO_DEVICE: backend.copy_to(on_host, device), TO_HOST: backend.copy_to(on_device, host)}

    def copies(way: str, x: Array, to: Device) -> None:
        for _ in range(COPIES):
            arrived[way] = backend.copy_to(x, to, out=arrived[way])

    plain_host, plain_device = torch_gpu.host_buffer(amount, place.kind)
    plain = f"plain torch, {amount / 2**30:.3g} GiB"
    done, done_plainly = backend.waitall, torch_gpu.synchronize
    cases = interleave(
        {
            TO_DEVICE: partial(timed, partial(copies, TO_DEVICE, on_host, device), done),
            f"{TO_DEVICE}, {plain}": partial(timed, partial(torch_gpu.copy, plain_host, plain_device), done_plainly),
            TO_HOST: partial(timed, partial(copies, TO_HOST, on_device, host), done),
            f"{TO_HOST}, {plain}": partial(timed, partial(torch_gpu.copy, plain_device, plain_host), done_plainly),
        },
        place.rounds,
    )
    findings = []
    for own, bus in (cases[:2], cases[2:]):
        findings += [
            Finding(f"page-locked copy, {own.name}", rate(own, amount / 1e9), "GB/s"),
            Finding(f"page-locked copy, {bus.name}: the bus", rate(bus, amount / 1e9), "GB/s"),
            Finding(f"{own.name}: ours / the bus", times_as_fast(own, bus), "", TARGET),
        ]
    altered = [way for way, copied in arrived.items() if not np.array_equal(backend.to_numpy(copied), values)]
    return PartResult(
        findings=tuple(findings),
        problems=tuple(f"what went from {way} arrived altered" for way in altered),
        parameters={"bytes in a timing": amount, "our copies in a timing": COPIES},
        cases=cases,
    )
