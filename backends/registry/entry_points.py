"""Reads entry points, by which parts of this package and of others are found without being imported."""

from configparser import ConfigParser
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path

__all__ = ["package_version", "registered"]

NAME = "parallel-core"
SETUP = Path(__file__).parents[2] / "setup.cfg"


def registered(group: str) -> list[EntryPoint]:
    """List the entry points of a group, those of this package and of others."""
    installed = list(entry_points(group=group))
    if _is_installed():
        return installed
    lines = _setup().get("options.entry_points", group, fallback="").strip().splitlines()
    own = [EntryPoint(name.strip(), value.strip(), group) for name, value in (line.split("=", 1) for line in lines)]
    return [*own, *installed]


def package_version() -> str:
    """Return this package's version; `unknown` if neither an installation nor a checkout says it."""
    return version(NAME) if _is_installed() else _setup().get("metadata", "version", fallback="unknown")


def _is_installed() -> bool:
    try:
        version(NAME)
    except PackageNotFoundError:
        return False
    return True


def _setup() -> ConfigParser:
    # No interpolation: percent signs in the file mean themselves.
    parsed = ConfigParser(interpolation=None)
    parsed.read(SETUP, encoding="utf-8")
    return parsed
