"""How NumPy is installed: it comes with parallel-core itself, and has one engine."""

from backends.installation.frameworks import Installation

__all__ = ["INSTALLATION"]

INSTALLATION = Installation(module="numpy", distributions="numpy", engines=("sync",))
