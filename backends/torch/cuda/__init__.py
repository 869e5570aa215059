"""CUDA streams that worker threads issue to."""
