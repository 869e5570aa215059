"""The experiments of the chapter "Asynchronous Computation"."""

__all__ = ["CHAPTER"]

CHAPTER = "Asynchronous Computation"
