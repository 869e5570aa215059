"""PyTorch: one class for each way of scheduling."""

__all__ = ["TITLE"]

TITLE = "PyTorch"
"""What readers call it."""
