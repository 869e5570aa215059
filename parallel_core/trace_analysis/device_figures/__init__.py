"""What a trace says of the devices' queues: division of their time, overlap, idleness, queue length, kernels, steps."""
