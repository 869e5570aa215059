"""Logical devices: what a backend schedules on.

On a CPU several of them share one memory, and divide its cores.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

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
        return f"{self.kind}:{self.index}{'' if self.stream is None else f'/{self.stream}'}"


HOST = Device("cpu", 0)
"""The memory of the host that GPUs copy from and to, page-locked so that a copy does not occupy the
host.
"""
Wanted: TypeAlias = int | tuple[Device, ...]
"""A number of devices, or the devices themselves."""


def same_memory(first: Device, second: Device) -> bool:
    """Return whether arrays of one device can be read on the other: on CPUs always, and on two
    streams of one GPU.
    """
    return first.kind == second.kind and (first.kind == "cpu" or first.index == second.index)


def foreign(framework: str, device: object, own: Iterable[Device]) -> BackendError:
    """Return the error of a device that a backend, whose `own` are others, was not loaded with, or
    of no device.
    """
    named = str(device) if isinstance(device, Device) else f"of type {type(device).__name__}"
    return BackendError(
        f"{framework} has no device {named}: its devices are {', '.join(map(str, own))}"
    )


def elsewhere(framework: str, out: Device, device: Device) -> BackendError:
    """Return the error of a copy to a device, whose `out` is a value on another one."""
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
    return (
        Device("cpu", int(cpu)) if cpu else Device("gpu", int(gpu), int(stream) if stream else None)
    )


def parse_devices(text: str) -> Wanted:
    """Read a number of devices, or names with commas between them.

    Raises BackendError for anything else.
    """
    if re.fullmatch(r"-?[0-9]{1,9}", text, re.ASCII):
        return int(text)
    return tuple(parse_device(name.strip()) for name in text.split(","))


def cpu_devices(wanted: Wanted) -> int:
    """Count the devices that share this process's cores.

    A number may later mean GPUs, which share none.
    """
    return wanted if isinstance(wanted, int) else sum(device.kind == "cpu" for device in wanted)


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
    says why the framework cannot compute on a GPU, and is empty if it can; if not, `auto` takes
    CPUs. Raises BackendError for what cannot be had.
    """
    if isinstance(wanted, int):
        devices = _first(framework, kind, wanted, gpus)
        named = False
    else:
        _check_names(framework, kind, wanted, gpus)
        devices, named = wanted, True
    indices = sorted({device.index for device in devices if device.kind == "gpu"})
    if indices and workers > 1:
        raise BackendError(
            f"{framework} leaves a GPU's queue to the GPU, and not to {workers} workers: "
            f"use --workers 1, or --device-kind cpu"
        )
    for index in indices:
        if reason := reason_against(framework, index):
            if named or kind == "gpu":
                raise BackendError(
                    f"{framework} cannot compute on gpu:{index} ({reason}): use --device-kind cpu"
                )
            note = f"gpu:{index} is not used, because {framework} cannot compute on it ({reason})"
            return Choice(_cpus(len(devices)), note)
    return Choice(devices, _about_streams(devices))


def _first(framework: str, kind: str, count: int, gpus: int) -> tuple[Device, ...]:
    if kind != "cpu" and gpus >= count:
        return tuple(Device("gpu", index) for index in range(count))
    if kind != "cpu" and gpus == 1:
        return tuple(Device("gpu", 0, stream) for stream in range(count))
    if kind == "gpu":
        raise BackendError(
            f"{framework} finds {gpus} GPUs, fewer than the {count} asked for: use --device-kind "
            "cpu"
        )
    return _cpus(count)


def _cpus(count: int) -> tuple[Device, ...]:
    # cpu:0 is left out everywhere because MXNet queues its waits there: a wait would stand behind
    # the work.
    return tuple(Device("cpu", index) for index in range(1, count + 1))


def _check_names(framework: str, kind: str, devices: Sequence[Device], gpus: int) -> None:
    if not devices:
        raise BackendError("a backend needs at least 1 device, not 0")
    for device in devices:
        if device.kind != kind != "auto":
            raise BackendError(
                f"--devices names {device}, and --device-kind says {kind}: leave one of them out"
            )
        if device == Device("cpu", 0):
            raise BackendError(
                "cpu:0 is left free, for MXNet queues its waits there: name cpu:1 and those after "
                "it"
            )
        if device.kind == "gpu" and device.index >= gpus:
            raise BackendError(
                f"{framework} finds {gpus or 'no'} {'GPU' if gpus == 1 else 'GPUs'}, and so no "
                f"{device}"
            )
        if devices.count(device) > 1:
            raise BackendError(f"--devices names {device} twice")
        whole = Device(device.kind, device.index)
        if device != whole and whole in devices:
            raise BackendError(
                f"{whole} is the whole GPU, and {device} a part of it: name one of them, or "
                f"{whole}/0"
            )


def _about_streams(devices: Sequence[Device]) -> str:
    streams: dict[int, list[str]] = {}
    for device in devices:
        if device.stream is not None:
            streams.setdefault(device.index, []).append(str(device))
    return "; ".join(
        f"{', '.join(names)} {'are streams' if len(names) > 1 else 'is a stream'} on one GPU, and "
        "share it"
        for names in streams.values()
    )
