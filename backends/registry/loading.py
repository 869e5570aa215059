"""Finds backends by entry point and loads one, importing its module only then."""

import inspect
import os
import weakref
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import EntryPoint
from pkgutil import resolve_name
from typing import get_args

from backends.devices import Device, DeviceKind, Wanted, cpu_devices, parse_device, parse_devices
from backends.errors import BackendError, unknown
from backends.host import keep_freed_memory
from backends.protocol import Backend, BaseBackend, Engine
from backends.registry.entry_points import offer_of, registered

MOST_THREADS = 4096
"""Of all CPU devices: frameworks abort if the system has no more."""


def names() -> tuple[str, ...]:
    """List the registered backends by name; that a backend is registered does not mean its framework is installed."""
    return tuple(registered())


def title(name: str) -> str:
    """Return what readers call a framework, `PyTorch`; the name itself if its backend does not say, or is unknown."""
    entry = registered().get(name)
    return (entry and offer_of(entry).title) or name


def load(
    name: str,
    devices: int | str | Sequence[str | Device] = 2,
    device_kind: str = "auto",
    engine: str | None = None,
    threads_per_device: int | None = None,
    workers_per_device: int = 1,
    variants: Sequence[str] = (),
) -> Backend:
    """Import a framework and return its backend.

    `devices` is the number of logical devices, or their names: `["cpu:1", "gpu:0"]`, or `"gpu:0/0,gpu:0/1"` for two
    streams on one GPU. `device_kind` is `cpu`, `gpu`, or `auto` (GPUs if there are enough of them, or one, and then
    streams on it). `engine` is `async` or `sync`; None takes the backend's own first choice: `async` for all but NumPy.
    `threads_per_device` is for CPU devices; None divides this process's cores among them. Synchronous engines
    compute on the calling thread, for which each framework has one number: the last load of a framework decides it, and
    `threads_per_device` of the backends before says so. `workers_per_device` is how many operators a CPU device may run
    at the same time, each on as many threads; more than 1 needs a queue, and so the `async` engine. `variants` are
    names that `backends.registry.variants` knows for it, of each setting at most one.
    Raises BackendError, in one line, for anything that cannot be had.
    """
    entry = _entry(name)
    wanted = _wanted(devices)
    if isinstance(wanted, int) and wanted < 1:
        raise BackendError(f"a backend needs at least 1 device, not {wanted}")
    if device_kind not in ("auto", "cpu", "gpu"):
        raise BackendError(unknown("device kind", device_kind, ("auto", "cpu", "gpu")))
    if engine not in (None, *get_args(Engine)):
        raise BackendError(unknown("engine", str(engine), get_args(Engine)))
    if threads_per_device is not None and threads_per_device < 1:
        raise BackendError(f"a device needs at least 1 thread, not {threads_per_device}")
    if workers_per_device < 1:
        raise BackendError(f"a device needs at least 1 worker, not {workers_per_device}")
    started = cpu_devices(wanted) * workers_per_device * (threads_per_device or 1)
    if started > MOST_THREADS:
        raise BackendError(f"devices × workers × threads are {started}, more than {MOST_THREADS}: ask for fewer")
    # For every framework alike, and before it allocates.
    keep_freed_memory()
    try:
        make: Callable[..., Backend] = resolve_name(offer_of(entry).backend)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise BackendError(f"{entry.value}, the entry point of {name!r}, cannot be imported: {reason}") from error
    if not callable(make):
        raise BackendError(
            f"{entry.value}, the entry point of {name!r}, cannot be called: an Offer's name is in capitals"
        )
    # Other people's backends may know nothing of workers or variants, and need not unless these are asked for.
    workers = () if workers_per_device == 1 else (workers_per_device,)
    named = {"variants": tuple(variants)} if variants else {}
    if named and not _takes_variants(make):
        raise BackendError(f"the backend {name!r} has no variants: leave out {', '.join(map(repr, variants))}")
    backend = make(wanted, device_kind, engine, threads_per_device, *workers, **named)
    if isinstance(backend, BaseBackend):
        _keep_account(backend)
    return backend


def class_of(name: str, engine: str, kinds: Collection[DeviceKind]) -> str:
    """Return the path, `module:name`, of the class that runs on an engine and devices of these kinds.

    For a backend that does not say, it is what its entry point names. Raises BackendError for an unknown name.
    """
    offer = offer_of(_entry(name))
    return offer.class_path(engine, kinds) if offer.class_path else offer.backend


_loaded: "weakref.WeakSet[BaseBackend]" = weakref.WeakSet()


def _keep_account(backend: BaseBackend) -> None:
    for other in _loaded:
        # The calling thread computes, and has one number of threads for each framework: the last that was set.
        if (other.name, other.engine) == (backend.name, "sync"):
            other.threads_per_device = backend.threads_per_device
    _loaded.add(backend)


def _refuse_in_child() -> None:
    for backend in _loaded:
        backend.refuse_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)


def _wanted(devices: int | str | Sequence[str | Device]) -> Wanted:
    if isinstance(devices, str):
        return parse_devices(devices)
    if isinstance(devices, int):
        return devices
    return tuple(parse_device(device) if isinstance(device, str) else device for device in devices)


def _takes_variants(make: Callable[..., Backend]) -> bool:
    parameters = inspect.signature(make).parameters.values()
    return any(one.name == "variants" or one.kind is one.VAR_KEYWORD for one in parameters)


def _entry(name: str) -> EntryPoint:
    entries = registered()
    if name not in entries:
        raise BackendError(unknown("backend", name, entries))
    return entries[name]
