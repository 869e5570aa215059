"""Logical devices: what a backend schedules on.

On a CPU several of them share one memory, and divide its cores.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from backends.errors import BackendError

DeviceKind = Literal["cpu", "gpu"]
DEVICE_NUMBER = "(0|[1-9][0-9]{0,3})"
DEVICE_NAME = re.compile(
    rf"(?:cpu:{DEVICE_NUMBER}|gpu:{DEVICE_NUMBER}(?:/{DEVICE_NUMBER})?)", re.ASCII
)


@dataclass(frozen=True)
class Device:
    """One queue of work.

    `str(device)` is `cpu:1` or `gpu:0`, or `gpu:0/1` for one of several streams on a GPU.
    """

    kind: DeviceKind
    index: int
    stream: int | None = None

    def __hash__(self) -> int:
        # Every launch looks its device up. A hash of all fields would take a tenth of a launch, and
        # few have one index.
        return self.index

    def __str__(self) -> str:
        name = f"{self.kind}:{self.index}"
        return name if self.stream is None else f"{name}/{self.stream}"


HOST = Device("cpu", 0)
"""The memory of the host that GPUs copy from and to, page-locked so that a copy does not occupy the
host.
"""
Wanted = int | tuple[Device, ...]
"""A number of devices, or the devices themselves."""


def same_memory(first: Device, second: Device) -> bool:
    """Return whether one device can read the arrays of the other.

    Two CPU devices can, and two streams of one GPU.
    """
    if first.kind != second.kind:
        return False
    return first.kind == "cpu" or first.index == second.index


def foreign(framework: str, device: object, own: Iterable[Device]) -> BackendError:
    """Return the error of a request for a device that is not among a backend's `own` devices.

    `device` may also be another object than a device.
    """
    what = str(device) if isinstance(device, Device) else f"of type {type(device).__name__}"
    own_devices = ", ".join(map(str, own))
    return BackendError(f"{framework} has no device {what}: its devices are {own_devices}")


def elsewhere(framework: str, out: Device, device: Device) -> BackendError:
    """Return the error of a copy to `device` whose argument `out` is a value on another device."""
    return BackendError(
        f"{framework}'s out= is on {out}, and the copy is to go to {device}: choose one of them"
    )


class Choice(NamedTuple):
    """The devices, and what a reader of results should know about their choice, if anything."""

    devices: tuple[Device, ...]
    note: str = ""


def parse_device(name: str) -> Device:
    """Read the name of a device, `cpu:1`, `gpu:0` or `gpu:0/1`.

    Raises BackendError for anything else.
    """
    match = DEVICE_NAME.fullmatch(name)
    if match is None:
        raise BackendError(
            f"{name!r} is not a device: say cpu:1, gpu:0, or gpu:0/1 for a stream on a GPU"
        )
    cpu, gpu, stream = match.groups()
    if cpu:
        return Device("cpu", int(cpu))
    if stream:
        return Device("gpu", int(gpu), int(stream))
    return Device("gpu", int(gpu))


def parse_devices(text: str) -> Wanted:
    """Read a number of devices, or names with commas between them.

    Raises BackendError for anything else.
    """
    if re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII):
        return int(text)
    return tuple(parse_device(name.strip()) for name in text.split(","))


def cpu_devices(wanted: Wanted) -> int:
    """Count the devices that may share this process's cores.

    A mere number of devices counts in full, though they may turn out to be GPUs.
    """
    if isinstance(wanted, int):
        return wanted
    return sum(device.kind == "cpu" for device in wanted)


def choose_devices(
    framework: str,
    kind: str,
    wanted: Wanted,
    gpus: int,
    workers: int = 1,
    reason_against: Callable[[str, int], str] = lambda *_: "",
) -> Choice:
    """Choose devices, given the number of GPUs that a framework finds.

    A number means `cpu:1` … `cpu:N` or `gpu:0` … `gpu:N-1`, or streams on the only GPU. `kind` is
    `cpu`, `gpu`, or `auto`: GPUs if there are enough, or one. `reason_against(framework, index)`
    says why the framework cannot compute on a GPU, and is empty if it can. If a GPU that was not
    asked for cannot be computed on, CPUs are chosen. Raises BackendError if there are no such
    devices.
    """
    if isinstance(wanted, int):
        devices = _first(framework, kind, wanted, gpus)
        gpus_were_asked_for = kind == "gpu"
    else:
        _check_names(framework, kind, wanted, gpus)
        devices = wanted
        gpus_were_asked_for = True
    gpu_indices = sorted({device.index for device in devices if device.kind == "gpu"})
    if gpu_indices and workers > 1:
        raise BackendError(
            f"{framework} leaves a GPU's queue to the GPU, and not to {workers} workers: "
            f"use --workers 1, or --device-kind cpu"
        )
    for index in gpu_indices:
        reason = reason_against(framework, index)
        if not reason:
            continue
        if gpus_were_asked_for:
            raise BackendError(
                f"{framework} cannot compute on gpu:{index} ({reason}): use --device-kind cpu"
            )
        note = f"gpu:{index} is not used, because {framework} cannot compute on it ({reason})"
        return Choice(_cpus(len(devices)), note)
    return Choice(devices, _about_streams(devices))


def _first(framework: str, kind: str, count: int, gpus: int) -> tuple[Device, ...]:
    """Return the first `count` devices of a kind, which are streams if there is only one GPU."""
    if kind == "cpu":
        return _cpus(count)
    if gpus >= count:
        return tuple(Device("gpu", index) for index in range(count))
    if gpus == 1:
        return tuple(Device("gpu", 0, stream) for stream in range(count))
    if kind == "auto":
        return _cpus(count)
    raise BackendError(
        f"{framework} finds {gpus} GPUs, fewer than the {count} asked for: use --device-kind cpu"
    )


def _cpus(count: int) -> tuple[Device, ...]:
    """Return the CPU devices from `cpu:1` on."""
    # cpu:0 is left out everywhere because MXNet queues its waits there: a wait would stand behind
    # the work.
    return tuple(Device("cpu", index) for index in range(1, count + 1))


def _check_names(framework: str, kind: str, devices: Sequence[Device], gpus: int) -> None:
    """Raise BackendError for named devices that the framework cannot have together."""
    if not devices:
        raise BackendError("a backend needs at least 1 device, not 0")
    for device in devices:
        if kind not in ("auto", device.kind):
            raise BackendError(
                f"--devices names {device}, and --device-kind says {kind}: leave one of them out"
            )
        if device == Device("cpu", 0):
            raise BackendError(
                "cpu:0 is left free, for MXNet queues its waits there: name cpu:1 and those after "
                "it"
            )
        if device.kind == "gpu" and device.index >= gpus:
            noun = "GPU" if gpus == 1 else "GPUs"
            raise BackendError(f"{framework} finds {gpus or 'no'} {noun}, and so no {device}")
        if devices.count(device) > 1:
            raise BackendError(f"--devices names {device} twice")
        whole_gpu = Device(device.kind, device.index)
        if device.stream is not None and whole_gpu in devices:
            raise BackendError(
                f"{whole_gpu} is the whole GPU, and {device} a part of it: name one of them, or "
                f"{whole_gpu}/0"
            )


def _about_streams(devices: Sequence[Device]) -> str:
    """Return the note that some devices are streams of one GPU; empty if none are."""
    streams_by_gpu: dict[int, list[str]] = {}
    for device in devices:
        if device.stream is not None:
            streams_by_gpu.setdefault(device.index, []).append(str(device))
    sentences = []
    for streams in streams_by_gpu.values():
        what_they_are = "are streams" if len(streams) > 1 else "is a stream"
        sentences.append(f"{', '.join(streams)} {what_they_are} on one GPU, and share it")
    return "; ".join(sentences)
