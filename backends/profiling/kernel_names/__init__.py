"""Short names for kernels, which stay distinct."""

from backends.profiling.kernel_names.short_names import short_names

__all__ = ["short_names"]
