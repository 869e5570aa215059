"""The experiments of the chapter "Training on Multiple GPUs"."""

__all__ = ["CHAPTER"]

CHAPTER = "Training on Multiple GPUs"
