"""What PyTorch's tracing library, Kineto, records: of 2021 and of today, on CUDA's devices and on other devices."""
