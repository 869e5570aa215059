"""Finds backends by entry point, without importing them, and loads one, importing its module only
then.

Each backend, of this package or of another one, has an entry point in the group
`parallel_core.backends`. It names a class with the verbs, a function that returns an instance, or,
by a name in capitals (`mine:OFFER`), an `Offer` that also declares what else there is.
"""

import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

from backends.base import BaseBackend
from backends.devices import Device, Wanted, cpu_devices, parse_device, parse_devices
from backends.errors import BackendError, unknown
from backends.host import keep_freed_memory
from backends.protocol import Backend, Engine
from backends.registry.files import in_files

GROUP = "parallel_core.backends"
READERS = "parallel_core.trace_readers"
NAME = "parallel-core"
SETUP = Path(__file__).parents[2] / "setup.cfg"
MOST_THREADS = 4096
"""Of all CPU devices: frameworks abort if the system has no more."""


@dataclass(frozen=True)
class Offer:
    """An offer of a package for a backend: paths, `module` or `module:name`, imported when needed.

    Only `backend` is needed. The module that holds the offer imports no framework, nor do those
    marked with *.
    """

    backend: str
    """The class, or a function that returns an instance; `backends.load` says with which
    arguments.
    """
    title: str = ""
    """What readers call the framework, `PyTorch`; without it, they read the backend's name."""
    variants: str = ""
    """* A tuple of `Variant`, those of one setting together, and its default first."""
    installation: str = ""
    """* An `Installation`; without it, `doctor` tries the first engine, and shows failures as they
      are.
    """
    kernels: str = ""
    """A module with the functions of `FrameworkKernels`; without it, the BLAS in the framework's
    package computes.
    """
    profiler: str = ""
    """* A module with the functions of `Profiler`."""
    group: str = ""
    """A function (backend, rendezvous) -> group, which joins a job of several processes."""
    tried: int = 0
    """Its place among the frameworks that a command tries that names none; 0: it tries others."""
    queue: str = ""
    """By whose workers a CPU device runs several operations: `by workers of MXNet's own queue`."""
    gpu_probe: str = ""
    """A Python program that finds a GPU, or shows why the framework finds none."""


def registered() -> dict[str, EntryPoint]:
    """Return the entry points of the backends, by name.

    Raises BackendError if two have one name, or there is none.
    """
    of_files = [EntryPoint(name, f"backends.registry.files:{name}", GROUP) for name in in_files()]
    return _by_name("backends", GROUP, (*_entry_points(GROUP), *of_files))


def trace_readers() -> dict[str, Callable[[], Any]]:
    """Return the readers of traces, by name, each with a function that imports it.

    Raises BackendError if two have one name, or there is none.
    """
    entries = _by_name("readers", READERS, _entry_points(READERS))
    return {name: entry.load for name, entry in entries.items()}


def _by_name(what: str, group: str, candidates: Iterable[EntryPoint]) -> dict[str, EntryPoint]:
    """Return entry points by name; raises BackendError if two have one name, or there is none."""
    entries: dict[str, EntryPoint] = {}
    for entry in candidates:
        first_entry = entries.setdefault(entry.name, entry)
        if first_entry.value != entry.value:
            raise BackendError(
                f"two {what} are called {entry.name!r} ({first_entry.value} and {entry.value}): "
                "uninstall one of them"
            )
    if not entries:
        raise BackendError(
            f"no entry points in {group}: install the package first (pip install -e .)"
        )
    return dict(sorted(entries.items()))


def offer_of(entry: EntryPoint) -> Offer:
    """Return the offer of a backend.

    If its entry point names no offer, or cannot be imported, the offer holds only the backend.
    """
    only_backend = Offer(entry.value)
    try:
        names_offer = entry.attr.isupper()
        offer = entry.load() if names_offer else None
    except (Exception, SystemExit):
        # Commands that need other backends go on; `load` and `doctor` say what is wrong here.
        return only_backend
    return offer if isinstance(offer, Offer) else only_backend


def offered(part: str) -> dict[str, Callable[[], Any]]:
    """Return by backend the functions that import and return a part: a field of `Offer`.

    Backends that do not offer the part are missing.
    """
    importers: dict[str, Callable[[], Any]] = {}
    for name, entry in registered().items():
        path = getattr(offer_of(entry), part)
        if path:
            importers[name] = partial(resolve_name, path)
    return importers


def offers() -> dict[str, Offer]:
    """Return the offers of all backends, by name."""
    return {name: offer_of(entry) for name, entry in registered().items()}


def package_version() -> str:
    """Return this package's version.

    `unknown` if neither an installation nor a checkout says it.
    """
    return installed_version(NAME) or str(_setup().get("metadata", "version", fallback="unknown"))


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution.

    None if it is not installed, or lies on a path without its metadata.
    """
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def names() -> tuple[str, ...]:
    """List the registered backends by name.

    That a backend is registered does not mean its framework is installed.
    """
    return tuple(registered())


def title(name: str) -> str:
    """Return the name by which readers know a framework, `PyTorch`.

    If its backend does not say, or is unknown, that is the name of the backend.
    """
    entry = registered().get(name)
    if entry is None:
        return name
    return offer_of(entry).title or name


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

    - `devices`: the number of logical devices, or their names: `["cpu:1", "gpu:0"]`, or
      `"gpu:0/0,gpu:0/1"` for two streams on one GPU.
    - `device_kind`: `cpu`, `gpu`, or `auto` (GPUs if there are enough of them, or one, and then
      streams on it).
    - `engine`: `async` or `sync`; None takes the backend's own first choice: `async` for all but
      NumPy.
    - `threads_per_device`: for CPU devices; None divides this process's cores among them.
      Synchronous engines compute on the calling thread, for which a framework has one number of
      threads: its last load decides that number, also for the backends loaded before.
    - `workers_per_device`: how many operators a CPU device may run at the same time, each on
      `threads_per_device` threads; more than 1 needs a queue, and so the `async` engine.
    - `variants`: names that `backends.registry.variants` knows for it, of each setting at most one.

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
    thread_count = cpu_devices(wanted) * workers_per_device * (threads_per_device or 1)
    if thread_count > MOST_THREADS:
        raise BackendError(
            f"devices × workers × threads are {thread_count}, more than {MOST_THREADS}: ask for "
            "fewer"
        )
    # For every framework alike, and before it allocates.
    keep_freed_memory()
    try:
        make: Callable[..., Backend] = resolve_name(offer_of(entry).backend)
    except BackendError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise BackendError(
            f"{entry.value}, the entry point of {name!r}, cannot be imported: {reason}"
        ) from error
    if not callable(make):
        raise BackendError(
            f"{entry.value}, the entry point of {name!r}, cannot be called: an Offer's name is in "
            "capitals"
        )
    # Some backends know nothing of workers or variants, and need not unless these are asked for.
    arguments: list[Any] = [wanted, device_kind, engine, threads_per_device]
    if workers_per_device != 1:
        arguments.append(workers_per_device)
    if variants:
        if not _takes_variants(make):
            variant_names = ", ".join(map(repr, variants))
            raise BackendError(f"the backend {name!r} has no variants: leave out {variant_names}")
        make = partial(make, variants=tuple(variants))
    try:
        backend = make(*arguments)
    except SystemExit as error:
        raise BackendError(
            f"the backend {name!r} called sys.exit({error.code!r}) when it was loaded"
        ) from error
    if isinstance(backend, BaseBackend):
        _keep_account(backend)
    return backend


_loaded: "weakref.WeakSet[BaseBackend]" = weakref.WeakSet()
_keeping_account = threading.Lock()
"""Held while the loaded backends are looked through: another thread may load one."""


def _keep_account(backend: BaseBackend) -> None:
    """Add a backend to the loaded ones, and correct the thread counts of earlier ones."""
    with _keeping_account:
        for earlier in _loaded:
            # On a sync engine the calling thread computes. It has one number of threads for each
            # framework: the last one that was set.
            if earlier.engine == "sync" and earlier.name == backend.name:
                earlier.threads_per_device = backend.threads_per_device
        _loaded.add(backend)


def _refuse_in_child() -> None:
    """Let every loaded backend refuse its verbs in a child that was just forked."""
    for backend in _loaded:
        backend.refuse_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_refuse_in_child)


def _wanted(devices: int | str | Sequence[str | Device]) -> Wanted:
    """Return the number of devices that a user wants, or the devices that the names stand for."""
    if isinstance(devices, str):
        return parse_devices(devices)
    if isinstance(devices, int):
        return devices
    return tuple(parse_device(device) if isinstance(device, str) else device for device in devices)


def _takes_variants(make: Callable[..., Backend]) -> bool:
    """Return whether a backend's class or function has a parameter `variants`."""
    parameters = inspect.signature(make).parameters.values()
    return any(
        parameter.name == "variants" or parameter.kind is parameter.VAR_KEYWORD
        for parameter in parameters
    )


def _entry(name: str) -> EntryPoint:
    """Return the entry point of a backend; raises BackendError if the name is unknown."""
    entries = registered()
    if name not in entries:
        raise BackendError(unknown("backend", name, entries))
    return entries[name]


def _entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group that are installed.

    Those of a checkout are read from its `setup.cfg`, because its metadata may be old.
    """
    installed = list(entry_points(group=group))
    lines = _setup().get("options.entry_points", group, fallback="").strip().splitlines()
    if not lines:
        return installed
    entries = []
    for line in lines:
        name, _, value = line.partition("=")
        entries.append(EntryPoint(name.strip(), value.strip(), group))
    # Those of other packages.
    entries += [entry for entry in installed if entry.dist is None or entry.dist.name != NAME]
    return entries


def _setup() -> ConfigParser:
    """Return the `setup.cfg` of a checkout, which is empty if there is none."""
    # No interpolation: percent signs in the file mean themselves.
    parsed = ConfigParser(interpolation=None)
    parsed.read(SETUP, encoding="utf-8")
    return parsed
