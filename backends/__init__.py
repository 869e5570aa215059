"""One framework a file behind one protocol. Importing this package imports no framework.

>>> import backends
>>> backend = backends.load("torch", devices=2)
"""

from backends.devices import HOST, Device
from backends.errors import BackendError, ComputationError
from backends.protocol import Array, Backend, Engine, Ops
from backends.registry import load, names

__all__ = [
    "HOST",
    "Array",
    "Backend",
    "BackendError",
    "ComputationError",
    "Device",
    "Engine",
    "Ops",
    "load",
    "names",
]
