"""Public names whose modules are imported when they are first asked for.

What measures needs NumPy and a framework; what shows needs other packages, which a machine that is lent for its GPU may
not have. A package whose `__init__` imported everything could measure nothing there.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["importer"]


def importer(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a package's `__getattr__` (PEP 562), given `module:attribute` for each public name.

    Modules are named from the package on. The function raises AttributeError for any other name.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        return getattr(import_module(f"{package}.{module}"), attribute)

    return find
