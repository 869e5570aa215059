"""NumPy: the synchronous reference for every number."""

__all__ = ["TITLE"]

TITLE = "NumPy"
"""What readers call it."""
