"""Known failures of an installation: a pattern of a framework's message, the cause, and the command that mends it."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backends.errors import BackendError
from backends.installation.cuda_wheels import DRIVER, MXNET_CUDA_PACKAGE, WHEELS

__all__ = [
    "CUDA_12_TORCH",
    "Diagnosis",
    "InstallationError",
    "diagnose",
    "diagnose_absence",
    "diagnose_driver",
    "diagnose_environment",
    "diagnose_missing_libraries",
]

MXNET_ENGINES = ("ThreadedEnginePerDevice", "ThreadedEngine", "NaiveEngine")
"""What MXNET_ENGINE_TYPE may be (MXNet, "Environment Variables")."""

SERVING = ("server", "scheduler")
"""Values of DMLC_ROLE with which `import mxnet` serves other processes and does not return."""

FIRST_PYTHON_WITHOUT_MXNET = (3, 12)

UNSET_ROLE = "unset DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_WORKER DMLC_NUM_SERVER"
CPU_ENVIRONMENT = "python3.11 -m venv mxnet-on-cpu && mxnet-on-cpu/bin/pip install 'parallel-core[mxnet]'"
JAX_ENVIRONMENT = "python3 -m venv jax-alone && jax-alone/bin/pip install 'parallel-core[jax]'"
TORCH_ENVIRONMENT = "python3 -m venv torch-alone && torch-alone/bin/pip install 'parallel-core[torch]'"
CUDA_11_TORCH = "pip install --force-reinstall 'torch<2.8' --index-url https://download.pytorch.org/whl/cu118"
CUDA_12_TORCH = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"
MXNET_ON_CPU = "parallel-core run parallel --backend mxnet --device-kind cpu"


@dataclass(frozen=True)
class Diagnosis:
    """A cause in one sentence, without a full stop, and the exact command that mends it."""

    cause: str
    command: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.command}"


class InstallationError(BackendError):
    """A framework cannot be used as it is installed, and the diagnosis says what to do."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(str(diagnosis))
        self.diagnosis = diagnosis


# For each framework: a pattern of its message, and the diagnosis.
MXNET = {
    r"'numpy' has no attribute 'bool'|np\.bool\b": Diagnosis(
        "MXNet 1.9.1 uses np.bool, which NumPy 1.24 removed", "pip install 'numpy<1.24'"
    ),
    r"\bPZERO\b": Diagnosis("MXNet 1.9.1 uses np.PZERO, which NumPy 2 removed", "pip install 'numpy<1.24'"),
    r"No module named 'distutils": Diagnosis(
        "MXNet 1.9.1 uses distutils, which Python 3.12 removed: it needs Python 3.11", CPU_ENVIRONMENT
    ),
    r"no kernel image is available": Diagnosis(
        "MXNet 1.9.1 holds machine code for GPUs of compute capability 5.0 to 8.6, and nothing that other GPUs "
        "could translate: it runs on this machine's CPU only",
        MXNET_ON_CPU,
    ),
    r"driver version is insufficient|driver on your system is too old": Diagnosis(
        "the NVIDIA driver is older than CUDA 11, which MXNet's build for CUDA 11.2 needs: update the driver, "
        "or stay on the CPU",
        MXNET_ON_CPU,
    ),
    r"undefined symbol: nccl": Diagnosis(
        "the NCCL that is loaded is not the one of CUDA 11: the wheels of CUDA 11, 12 and 13 overwrite each other",
        "pip install --force-reinstall --no-deps nvidia-nccl-cu11==2.21.5",
    ),
    r"find\(\"(DMLC|PS)_": Diagnosis(
        "some, not all, variables of MXNet's key-value store were left in the environment", UNSET_ROLE
    ),
}
TORCH = {
    r"driver on your system is too old \(found version 11\d{3}\)": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's, which is CUDA 11", CUDA_11_TORCH
    ),
    r"driver on your system is too old \(found version 12\d{3}\)": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's, which is CUDA 12", CUDA_12_TORCH
    ),
    r"driver on your system is too old|driver version is insufficient": Diagnosis(
        "this PyTorch is built for a newer CUDA than the NVIDIA driver's: update the driver, or stay on the CPU",
        "parallel-core run parallel --backend torch --device-kind cpu",
    ),
    r"no kernel image is available": Diagnosis(
        "this PyTorch holds no machine code for this GPU; its builds for CUDA 12.6 hold that of compute "
        "capability 5.0 to 9.0",
        CUDA_12_TORCH,
    ),
    r"undefined symbol: nccl": Diagnosis(
        "the NCCL that is loaded is not PyTorch's own: the wheels of CUDA 11, 12 and 13 overwrite each other, so "
        "mxnet-cu112 and a CUDA build of PyTorch need an environment each",
        TORCH_ENVIRONMENT,
    ),
}


def diagnose(framework: str, text: str) -> Diagnosis | None:
    """Recognise a framework's failure by the text of its error or warning; None if it is not known."""
    for pattern, diagnosis in {"mxnet": MXNET, "torch": TORCH}.get(framework, {}).items():
        if re.search(pattern, text):
            return diagnosis
    if framework != "mxnet":
        return None
    if engine := re.search(r"Cannot find Engine (.*)", text):
        return _unknown_engine(engine[1].strip())
    if missing := re.search(r"(lib[\w.+-]+\.so[\d.]*): cannot open shared object file", text):
        return diagnose_driver() if missing[1] == DRIVER else diagnose_missing_libraries([missing[1]])
    return None


def diagnose_absence(framework: str, python: tuple[int, ...] = sys.version_info[:3]) -> Diagnosis:
    """Return how to install a framework that is not installed; `python` is the version of Python."""
    if framework == "mxnet" and python >= FIRST_PYTHON_WITHOUT_MXNET:
        version = ".".join(map(str, python[:2]))
        return Diagnosis(f"mxnet is not installed, and MXNet 1.9.1 needs Python 3.11, not {version}", CPU_ENVIRONMENT)
    if framework == "jax":
        return Diagnosis(
            "jax is not installed; it needs NumPy 2, and so an environment of its own beside MXNet's, which `compare` "
            "takes by --python jax=jax-alone/bin/python",
            JAX_ENVIRONMENT,
        )
    return Diagnosis(f"{framework} is not installed", f"pip install 'parallel-core[{framework}]'")


def diagnose_environment(framework: str, environment: Mapping[str, str]) -> tuple[Diagnosis, ...]:
    """List the environment variables with which importing the framework would block, or fail later."""
    if framework != "mxnet":
        return ()
    wrong = []
    if (role := environment.get("DMLC_ROLE")) in SERVING:
        wrong.append(Diagnosis(f"DMLC_ROLE={role} makes `import mxnet` serve other processes for good", UNSET_ROLE))
    if (engine := environment.get("MXNET_ENGINE_TYPE", MXNET_ENGINES[0])) not in MXNET_ENGINES:
        wrong.append(_unknown_engine(engine))
    return tuple(wrong)


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


def _unknown_engine(name: str) -> Diagnosis:
    return Diagnosis(
        f"MXNET_ENGINE_TYPE={name} is none of MXNet's engines ({', '.join(MXNET_ENGINES)})", "unset MXNET_ENGINE_TYPE"
    )
