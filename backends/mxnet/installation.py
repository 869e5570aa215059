"""How MXNet is installed, and what goes wrong with it."""

import re
from collections.abc import Mapping

from backends.installation.commands import install_command
from backends.installation.cuda_libraries import (
    CPU_ENVIRONMENT,
    DRIVER,
    MXNET_CUDA_PACKAGE,
    diagnose_driver,
    diagnose_missing_libraries,
)
from backends.installation.frameworks import Diagnosis, Gpu, Gpus, Installation, KnownFailures, failure_of

ENGINES = ("ThreadedEnginePerDevice", "ThreadedEngine", "NaiveEngine")
"""What MXNET_ENGINE_TYPE may be (MXNet, "Environment Variables")."""
ENGINE = "MXNET_ENGINE_TYPE"

ROLE = "DMLC_ROLE"
SERVING = ("server", "scheduler")
"""Values of DMLC_ROLE with which `import mxnet` serves other processes and does not return."""
UNSET_ROLE = "unset DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_WORKER DMLC_NUM_SERVER"

FIRST_PYTHON_WITHOUT_MXNET = (3, 12)
MXNET_ON_CPU = "parallel-core run parallel --backend mxnet --device-kind cpu"

SET_BY_US = {
    ENGINE: "which engine MXNet takes",
    "MXNET_CPU_WORKER_NTHREADS": "how many workers serve a device's queue",
    "MXNET_CPU_TEMP_COPY": "how many pieces of scratch memory all devices share",
    "MXNET_EXEC_BULK_EXEC_TRAIN": "whether a backward pass is one operator",
    "MXNET_ELIMINATE_COMMON_EXPR": "whether a unit computes equal operations once",
    "MXNET_USE_FUSION": "whether a unit's operations on a GPU are made one",
}
"""parallel-core sets these itself before it imports MXNet: a value in the environment changes other programs only."""


def _unknown_engine(name: str) -> Diagnosis:
    return Diagnosis(f"{ENGINE}={name} is none of MXNet's engines ({', '.join(ENGINES)})", f"unset {ENGINE}")


def _missing_library(match: re.Match[str]) -> Diagnosis | None:
    return diagnose_driver() if match[1] == DRIVER else diagnose_missing_libraries([match[1]])


KNOWN_FAILURES: KnownFailures = {
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
    r"Cannot find Engine (.*)": lambda match: _unknown_engine(match[1].strip()),
    r"(lib[\w.+-]+\.so[\d.]*): cannot open shared object file": _missing_library,
}


def _absent(python: tuple[int, ...]) -> Diagnosis | None:
    if python < FIRST_PYTHON_WITHOUT_MXNET:
        return None
    version = ".".join(map(str, python[:2]))
    cause = f"mxnet is not installed, and MXNet 1.9.1 needs Python 3.11, not {version}"
    return Diagnosis(f"{cause}: `uv python install 3.11` brings one, which `make demo` finds", CPU_ENVIRONMENT)


def _harmful_variables(environment: Mapping[str, str]) -> Mapping[str, Diagnosis]:
    wrong = {}
    if (role := environment.get(ROLE)) in SERVING:
        wrong[ROLE] = Diagnosis(f"{ROLE}={role} makes `import mxnet` serve other processes for good", UNSET_ROLE)
    if (engine := environment.get(ENGINE, ENGINES[0])) not in ENGINES:
        wrong[ENGINE] = _unknown_engine(engine)
    return wrong


def _gpus() -> Gpus:
    import mxnet as mx

    if not mx.runtime.Features().is_enabled("CUDA"):
        return Gpus()
    try:
        count: int = mx.context.num_gpus()
    except Exception as error:
        return Gpus("CUDA", failure=failure_of("mxnet", error))
    return Gpus("CUDA", tuple(Gpu(index, None, _memory(index), None) for index in range(count)))


def _memory(index: int) -> int | None:
    import mxnet as mx

    try:
        return int(mx.context.gpu_memory_info(index)[1])
    except mx.MXNetError:
        return None


INSTALLATION = Installation(
    module="mxnet",
    distributions=r"mxnet(-(cu|mkl|native)\w*)?",
    engines=("async", "sync"),
    numpy="<1.24",
    absent=_absent,
    known_failures=KNOWN_FAILURES,
    harmful_variables=_harmful_variables,
    known_variables={
        name: f"{what}, in other programs; parallel-core sets its own" for name, what in SET_BY_US.items()
    },
    prefixes=("MXNET_",),
    gpus=_gpus,
    cuda_build=f"pip uninstall --yes mxnet && {install_command(MXNET_CUDA_PACKAGE)}",
)
