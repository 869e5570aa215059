"""JAX: every launch is a compiled program, and XLA's CPU client queues it."""

from backends.registry import Offer

__all__ = ["OFFER"]

OFFER = Offer(
    title="JAX",
    backend="backends.jax.backend:JAXBackend",
    variants="backends.jax.variants:VARIANTS",
    installation="backends.jax.installation:INSTALLATION",
    kernels="backends.jax.kernels",
    profiler="backends.jax.profiler",
    group="backends.jax.process_group:join_jax",
)
