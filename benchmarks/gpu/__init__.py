"""What `benchmarks.gpu_check` measures, a part a file. Needs NumPy and a framework, and no other package."""
