"""The experiments of the chapter "Training on Multiple GPUs"."""
