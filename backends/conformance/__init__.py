"""Holds a backend to the protocol: random programs over its verbs, compared with NumPy."""

from backends.conformance.searching import Found, Limits, program_of, search

__all__ = ["Found", "Limits", "program_of", "search"]
