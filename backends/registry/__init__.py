"""Finds backends, and what belongs to them, by entry point. Importing this package imports no framework."""

from backends.registry.entry_points import Offer, installed_version, offered, package_version
from backends.registry.files import named
from backends.registry.loading import class_of, load, names, title

__all__ = ["Offer", "class_of", "installed_version", "load", "named", "names", "offered", "package_version", "title"]
