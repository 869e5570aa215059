"""The environment variables that plain MXNet and PyTorch read when they are imported."""

import os

from backends.installation.kernels import CORE_TYPE
from backends.mxnet.kernels import core_type_to_set

__all__ = ["set_environment"]


def set_environment(threads: int) -> None:
    """Set what our MXNet backend sets too: threads of an operator, workers of a device, scratch memory, kernels.

    With less scratch memory plain MXNet is slower on two devices than on one. Bulk execution, which we switch off,
    stays as MXNet has it.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["MXNET_CPU_WORKER_NTHREADS"] = "1"
    os.environ["MXNET_CPU_TEMP_COPY"] = "256"
    os.environ.pop("MXNET_ENGINE_TYPE", None)
    if core_type := core_type_to_set(as_shipped=False):
        os.environ[CORE_TYPE] = core_type
