"""What the installed package says of itself; a checkout that is not installed says it in setup.cfg.

A machine that is lent for its GPU may have no network, and then no way to install anything.
"""

from configparser import ConfigParser
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path

__all__ = ["package_version", "registered"]

NAME = "parallel-core"
SETUP = Path(__file__).parent.parent / "setup.cfg"


def registered(group: str) -> list[EntryPoint]:
    """List the entry points of a group, those of this package and of others."""
    found = list(entry_points(group=group))
    if _is_installed():
        return found
    lines = _setup().get("options.entry_points", group, fallback="").strip().splitlines()
    own = [EntryPoint(name.strip(), value.strip(), group) for name, value in (line.split("=", 1) for line in lines)]
    return [*own, *found]


def package_version() -> str:
    """Return this package's version; `unknown` where neither an installation nor a checkout tells."""
    return version(NAME) if _is_installed() else _setup().get("metadata", "version", fallback="unknown")


def _is_installed() -> bool:
    try:
        version(NAME)
    except PackageNotFoundError:
        return False
    return True


def _setup() -> ConfigParser:
    # The file holds percent signs for nobody to fill in.
    parsed = ConfigParser(interpolation=None)
    parsed.read(SETUP, encoding="utf-8")
    return parsed
