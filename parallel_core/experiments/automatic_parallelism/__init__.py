"""The experiments of the chapter "Automatic Parallelism"."""
