"""JAX: every launch is a compiled program, and XLA's CPU client queues it."""

__all__ = ["TITLE"]

TITLE = "JAX"
"""What readers call it."""
