"""Finds backends, and what belongs to them, by entry point. Importing this package imports no framework."""

from backends.registry.entry_points import package_version, registered
from backends.registry.loading import class_of, load, names, title

__all__ = ["class_of", "load", "names", "package_version", "registered", "title"]
