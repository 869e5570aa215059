"""Reads entry points, by which backends of this package and of other packages are found without being imported.

Each backend has one, in the group `parallel_core.backends`. It names a class with the verbs, a function that returns an
instance, or, by a name in capitals (`mine:OFFER`), an `Offer` that also declares what else there is.
"""

from collections.abc import Callable, Collection
from configparser import ConfigParser
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from backends.devices import DeviceKind
from backends.errors import BackendError
from backends.registry.files import in_files

GROUP = "parallel_core.backends"
NAME = "parallel-core"
SETUP = Path(__file__).parents[2] / "setup.cfg"


@dataclass(frozen=True)
class Offer:
    """What a package offers for a backend: paths, `module` or `module:name`, which are imported when they are needed.

    Only `backend` is needed. The module that holds the offer imports no framework, nor do those marked with *.
    """

    backend: str
    """The class, or a function that returns an instance; `backends.load` says with which arguments."""
    title: str = ""
    """What readers call the framework, `PyTorch`; without it, they read the backend's name."""
    class_path: Callable[[str, Collection[DeviceKind]], str] | None = None
    """A function (engine, kinds of devices) -> path of the class that runs there; without it, that is `backend`."""
    variants: str = ""
    """* A tuple of `Variant`, those of one setting together, and its default first."""
    installation: str = ""
    """* An `Installation`; without it, `doctor` tries the first engine, and shows failures as they are."""
    kernels: str = ""
    """A module with the functions of `FrameworkKernels`; without it, the BLAS in the framework's package computes."""
    profiler: str = ""
    """* A module with the functions of `Profiler`."""
    group: str = ""
    """A function (backend, rendezvous) -> group, which joins a job of several processes."""


def registered() -> dict[str, EntryPoint]:
    """Return the entry points of the backends, by name; raises BackendError if two have one name, or there is none."""
    entries: dict[str, EntryPoint] = {}
    for entry in (*_entry_points(), *_of_files()):
        other = entries.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise BackendError(
                f"two backends are called {entry.name!r} ({other.value} and {entry.value}): uninstall one of them"
            )
    if not entries:
        raise BackendError(f"no entry points in {GROUP}: install the package first (pip install -e .)")
    return dict(sorted(entries.items()))


def offer_of(entry: EntryPoint) -> Offer:
    """Return what a backend offers: if its entry point names no offer, there is only the backend."""
    try:
        named = entry.load() if entry.attr.isupper() else None
    except Exception:
        # Commands that need other backends go on; `load` and `doctor` say what is wrong with this one.
        named = None
    return named if isinstance(named, Offer) else Offer(entry.value)


def offered(part: str) -> dict[str, Callable[[], Any]]:
    """Return the backends that offer a part, a field of `Offer`; each with a function that imports and returns it."""
    paths = {name: getattr(offer_of(entry), part) for name, entry in registered().items()}
    return {name: partial(resolve_name, path) for name, path in paths.items() if path}


def package_version() -> str:
    """Return this package's version; `unknown` if neither an installation nor a checkout says it."""
    return installed_version(NAME) or str(_setup().get("metadata", "version", fallback="unknown"))


def requirements() -> list[str]:
    """Return what this package requires, by its installation or else by its checkout."""
    if installed_version(NAME):
        return requires(NAME) or []
    return str(_setup().get("options", "install_requires", fallback="")).split("\n")[1:]


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution; None if it is not installed, or lies on a path without its metadata."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _entry_points() -> list[EntryPoint]:
    installed = list(entry_points(group=GROUP))
    if installed_version(NAME):
        return installed
    lines = _setup().get("options.entry_points", GROUP, fallback="").strip().splitlines()
    own = [EntryPoint(name.strip(), value.strip(), GROUP) for name, value in (line.split("=", 1) for line in lines)]
    return [*own, *installed]


def _of_files() -> list[EntryPoint]:
    return [EntryPoint(name, f"backends.registry.files:{name}", GROUP) for name in in_files()]


def _setup() -> ConfigParser:
    # No interpolation: percent signs in the file mean themselves.
    parsed = ConfigParser(interpolation=None)
    parsed.read(SETUP, encoding="utf-8")
    return parsed
