"""PyTorch: one class for each way of scheduling."""
