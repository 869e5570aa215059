"""The CUDA 11 libraries that MXNet's CUDA build is linked against, and the wheels that hold them."""

from collections.abc import Sequence
from typing import NamedTuple

from backends.installation.diagnosis import Diagnosis

__all__ = [
    "CPU_ENVIRONMENT",
    "DRIVER",
    "MXNET_CUDA_PACKAGE",
    "WHEELS",
    "Wheel",
    "diagnose_driver",
    "diagnose_missing_libraries",
]

MXNET_CUDA_PACKAGE = "mxnet-cu112"
"""The distribution of MXNet's CUDA build; its CPU build is called `mxnet`."""

DRIVER = "libcuda.so.1"
"""The NVIDIA driver's library. No wheel holds it."""

CPU_ENVIRONMENT = "python3.11 -m venv mxnet-on-cpu && mxnet-on-cpu/bin/pip install 'parallel-core[mxnet]'"
"""The command that makes an environment for MXNet's CPU build."""


class Wheel(NamedTuple):
    """A distribution and the libraries in it that MXNet needs."""

    name: str
    version: str
    sonames: tuple[str, ...]

    @property
    def requirement(self) -> str:
        """The distribution with its version, as in the extra of setup.cfg."""
        return self.name + self.version


# In the order of loading: each needs only those before it.
WHEELS = (
    Wheel("nvidia-cuda-runtime-cu11", "==11.8.89", ("libcudart.so.11.0",)),
    Wheel("nvidia-cuda-nvrtc-cu11", "==11.8.89", ("libnvrtc.so.11.2",)),
    Wheel("nvidia-cublas-cu11", "==11.11.3.6", ("libcublasLt.so.11", "libcublas.so.11")),
    Wheel("nvidia-cusolver-cu11", "==11.4.1.48", ("libcusolver.so.11",)),
    Wheel("nvidia-cufft-cu11", "==10.9.0.58", ("libcufft.so.10",)),
    Wheel("nvidia-curand-cu11", "==10.3.0.86", ("libcurand.so.10",)),
    Wheel("nvidia-nvtx-cu11", "==11.8.86", ("libnvToolsExt.so.1",)),
    Wheel("nvidia-nccl-cu11", "==2.21.5", ("libnccl.so.2",)),
    # cuDNN 9 has another soname.
    Wheel("nvidia-cudnn-cu11", "<9", ("libcudnn.so.8",)),
)


def diagnose_missing_libraries(sonames: Sequence[str]) -> Diagnosis | None:
    """Name the wheels that hold libraries that MXNet's CUDA build lacks; None if no wheel holds any of them."""
    needed = [f"{soname} ({wheel.requirement})" for soname in sonames for wheel in WHEELS if soname in wheel.sonames]
    if not needed:
        return None
    return Diagnosis(
        f"{MXNET_CUDA_PACKAGE} needs {', '.join(needed)}", f"pip install 'parallel-core[{MXNET_CUDA_PACKAGE}]'"
    )


def diagnose_driver(reason: str = "not found") -> Diagnosis:
    """Return what to do if the NVIDIA driver's library cannot be loaded."""
    return Diagnosis(
        f"the NVIDIA driver is not installed ({DRIVER}: {reason}), and {MXNET_CUDA_PACKAGE} needs it: install the "
        "driver, or use MXNet's CPU build in another environment",
        CPU_ENVIRONMENT,
    )
