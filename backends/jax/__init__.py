"""JAX: every launch is a compiled program, and XLA's CPU client queues it."""
