"""What CUDA and PyTorch on it are told once for the whole process: whether to wait for each kernel, how to round."""

import os
from typing import Any

from backends.errors import BackendError
from backends.installation.importing import Settings

__all__ = ["settle_cuda"]

BLOCKING = "CUDA_LAUNCH_BLOCKING"


def settle_cuda(torch: Any, blocking: bool, tf32: bool) -> Settings:
    """Set whether every kernel is waited for, and whether TensorFloat-32 may stand in for float32; return both.

    Raises BackendError where CUDA has been started with the other value of CUDA_LAUNCH_BLOCKING.
    """
    # CUDA reads this when it starts, which is not when PyTorch is imported.
    wanted, found = str(int(blocking)), os.environ.get(BLOCKING, "0")
    if found != wanted and torch.cuda.is_initialized():
        raise BackendError(f"CUDA was started with {BLOCKING}={found}, and this engine needs {wanted}: start afresh")
    os.environ[BLOCKING] = wanted
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    told = str(tf32)
    return {
        BLOCKING: wanted,
        "torch.backends.cuda.matmul.allow_tf32": told,
        "torch.backends.cudnn.allow_tf32": told,
    }
