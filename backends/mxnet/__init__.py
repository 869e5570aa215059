"""MXNet: its engine queues every operator, on CPUs and on GPUs."""
