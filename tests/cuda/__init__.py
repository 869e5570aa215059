"""MXNet's CUDA build without a system CUDA: its libraries, and what is said where it cannot be loaded."""
