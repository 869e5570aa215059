"""JAX's GPUs: which there are, what JAX reads to find them, and why each is one logical device.

This module imports no JAX: it is given `jax`.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from backends.devices import Choice, Wanted, choose_devices, cpu_devices
from backends.errors import BackendError
from backends.protocol import FrameworkSettings

PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
"""The packages through which JAX finds NVIDIA's GPUs."""
PINNED = "pinned_host"
"""JAX's memory of the host that a GPU copies from and to by itself."""
ONE_AT_A_TIME = "jax runs one program at a time on a GPU"


def may_be_used(devices: Wanted, device_kind: str) -> bool:
    """Return whether GPUs may be among the devices that are wanted; JAX is not imported for it."""
    if device_kind == "cpu":
        return False
    if not isinstance(devices, int) and cpu_devices(devices) == len(devices):
        return False
    return any(map(find_spec, PLUGINS))


def settings_with(gpus: bool) -> FrameworkSettings:
    """Return the environment under which JAX is imported, for GPUs or for CPUs only."""
    if not gpus:
        return {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "true"}
    return {
        "JAX_PLATFORMS": None,
        "JAX_ENABLE_X64": "true",
        # Otherwise JAX takes three quarters of a GPU's memory, from other frameworks too.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def found_by(jax: Any) -> list[Any]:
    """List the GPUs that JAX finds."""
    try:
        return list(jax.devices("cuda"))
    except RuntimeError:
        # JAX raises this if it finds none.
        return []


def choose(
    devices: Wanted, device_kind: str, gpus: int, reason_against: Callable[[str, int], str]
) -> Choice:
    """Choose whole GPUs, or CPUs.

    Raises BackendError for streams of a GPU, and for both kinds together.
    """
    chosen = choose_devices("jax", device_kind, devices, gpus, reason_against=reason_against)
    streams = [device for device in chosen.devices if device.stream is not None]
    streams_were_asked_for = not isinstance(devices, int) or device_kind != "auto"
    if streams and not streams_were_asked_for:
        cpus = choose_devices("jax", "cpu", devices, 0)
        return Choice(cpus.devices, f"gpu:0 is not used, because {ONE_AT_A_TIME}")
    if streams:
        raise BackendError(
            f"{ONE_AT_A_TIME}, so there is no {streams[-1]}: use --devices with whole GPUs, such "
            "as gpu:0"
        )
    if len({device.kind for device in chosen.devices}) > 1:
        raise BackendError("jax computes on CPUs or on GPUs here: name devices of one kind")
    return chosen
