"""How NumPy is installed: it comes with parallel-core itself, and has one engine."""

from backends.installation.frameworks import Installation

INSTALLATION = Installation(module="numpy", distributions="numpy", engines=("sync",))
