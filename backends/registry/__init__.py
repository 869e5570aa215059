"""Finds backends, and what belongs to them, by entry point.

Importing this package imports no framework.
"""

from backends.registry.files import named, spelled
from backends.registry.loading import (
    Offer,
    installed_version,
    load,
    names,
    offered,
    offers,
    package_version,
    title,
    trace_readers,
)

__all__ = [
    "Offer",
    "installed_version",
    "load",
    "named",
    "names",
    "offered",
    "offers",
    "package_version",
    "spelled",
    "title",
    "trace_readers",
]
