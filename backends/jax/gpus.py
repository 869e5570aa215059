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
    """Return whether GPUs may be among the devices that are wanted; JAX is not asked for others."""
    if device_kind == "cpu":
        return False
    if not isinstance(devices, int) and cpu_devices(devices) == len(devices):
        return False
    return any(map(find_spec, PLUGINS))


def settings_with(gpus: bool) -> FrameworkSettings:
    """Return the environment under which JAX is imported."""
    if not gpus:
        return {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "true"}
    # Otherwise JAX takes three quarters of a GPU's memory, from other frameworks too.
    reserving = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return {"JAX_PLATFORMS": None, "JAX_ENABLE_X64": "true", **reserving}


def found_by(jax: Any) -> list[Any]:
    """List JAX's GPUs."""
    try:
        return list(jax.devices("cuda"))
    except RuntimeError:
        # That is how JAX says that it has none.
        return []


def choose(
    devices: Wanted, device_kind: str, gpus: int, reason_against: Callable[[str, int], str]
) -> Choice:
    """Choose whole GPUs, or CPUs; raises BackendError for streams of a GPU, and for both kinds
    together.
    """
    chosen = choose_devices("jax", device_kind, devices, gpus, reason_against=reason_against)
    streams = [device for device in chosen.devices if device.stream is not None]
    if streams and isinstance(devices, int) and device_kind == "auto":
        on_cpus = choose_devices("jax", "cpu", devices, 0)
        return Choice(on_cpus.devices, f"gpu:0 is not used, because {ONE_AT_A_TIME}")
    if streams:
        raise BackendError(
            f"{ONE_AT_A_TIME}, so there is no {streams[-1]}: use --devices with whole GPUs, such "
            "as gpu:0"
        )
    if len({device.kind for device in chosen.devices}) > 1:
        raise BackendError("jax computes on CPUs or on GPUs here: name devices of one kind")
    return chosen
