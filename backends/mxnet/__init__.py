"""MXNet: its engine queues every operator, on CPUs and on GPUs."""

__all__ = ["TITLE"]

TITLE = "MXNet"
"""What readers call it."""
