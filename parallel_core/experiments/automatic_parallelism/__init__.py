"""The experiments of the chapter "Automatic Parallelism"."""

__all__ = ["CHAPTER"]

CHAPTER = "Automatic Parallelism"
