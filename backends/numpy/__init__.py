"""NumPy: the synchronous reference for every number."""

from backends.installation.frameworks import Installation
from backends.registry import Offer

INSTALLATION = Installation(module="numpy", engines=("sync",))

OFFER = Offer(
    title="NumPy",
    backend="backends.numpy.backend:NumPyBackend",
    installation="backends.numpy:INSTALLATION",
)
