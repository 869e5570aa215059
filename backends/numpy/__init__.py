"""NumPy: the synchronous reference for every number."""

from backends.registry import Offer

OFFER = Offer(
    title="NumPy",
    backend="backends.numpy.backend:NumPyBackend",
    installation="backends.numpy.installation:INSTALLATION",
)
