"""MXNet's installation, what goes wrong with it, and CUDA 11's libraries for its CUDA build.

They come from their wheels, or from the system if there are none. MXNet's library names what it
needs (`libcudart.so.11.0`) and leaves it to the system's loader to find it, which does not look
into wheels. It takes a library of that name that is already in the process.
"""

import ctypes
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from backends.installation.frameworks import (
    Diagnosis,
    Gpu,
    Gpus,
    Installation,
    InstallationError,
    KnownFailures,
    failure_of,
    install_command,
    separate_environment,
)

ROLE = "DMLC_ROLE"
SERVING = ("server", "scheduler")
"""Values of DMLC_ROLE with which `import mxnet` serves other processes and does not return."""
UNSET_ROLE = "unset DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_WORKER DMLC_NUM_SERVER"

FIRST_PYTHON_WITHOUT_MXNET = (3, 12)
MXNET_ON_CPU = "parallel-core run parallel --backend mxnet --device-kind cpu"

MXNET_CPU_PACKAGE, MXNET_CUDA_PACKAGE = "mxnet", "mxnet-cu112"
"""The distributions of MXNet's builds."""
DRIVER = "libcuda.so.1"
"""The NVIDIA driver's library. No wheel holds it."""
_, CPU_ENVIRONMENT = separate_environment("mxnet", "on-cpu", "python3.11")
"""The command that makes an environment for MXNet's CPU build."""
INSTALL = install_command(MXNET_CUDA_PACKAGE)
ARM_LIBRARIES = (
    "sudo apt-get install liblapacke libopenblas0-openmp && "
    "sudo ln -s liblapacke.so.3 /usr/lib/aarch64-linux-gnu/libarmpl_lp64_mp.so && "
    "sudo ln -s libm.so.6 /usr/lib/aarch64-linux-gnu/libamath.so && "
    "sudo ln -s libm.so.6 /usr/lib/aarch64-linux-gnu/libastring.so"
)
"""The command that puts Debian's libraries in place of Arm's, whose functions have their names."""
ABSENT = re.compile(r"(\S+): cannot open shared object file: No such file")


class Wheel(NamedTuple):
    """A distribution and the libraries in it that MXNet needs."""

    name: str
    version: str
    sonames: tuple[str, ...]

    @property
    def requirement(self) -> str:
        """The distribution with its version, as in the extra of setup.cfg."""
        return self.name + self.version

    @property
    def reinstall(self) -> str:
        """The command that writes its files again."""
        return f"pip install --force-reinstall --no-deps '{self.requirement}'"


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
    """Name the wheels that hold libraries that MXNet's CUDA build lacks.

    None if no wheel holds any of them.
    """
    requirement_of = {soname: wheel.requirement for wheel in WHEELS for soname in wheel.sonames}
    needed = [
        f"{soname} ({requirement_of[soname]})" for soname in sonames if soname in requirement_of
    ]
    if not needed:
        return None
    cause = f"{MXNET_CUDA_PACKAGE} needs {', '.join(needed)}"
    return Diagnosis(cause, INSTALL, "libraries-missing")


def diagnose_driver(reason: str = "not found") -> Diagnosis:
    """Return what to do if the NVIDIA driver's library cannot be loaded."""
    return Diagnosis(
        f"the NVIDIA driver is not installed ({DRIVER}: {reason}), and {MXNET_CUDA_PACKAGE} needs "
        "it: install the "
        "driver, or use MXNet's CPU build in another environment",
        CPU_ENVIRONMENT,
        "driver-missing",
    )


def _missing_library(match: re.Match[str]) -> Diagnosis | None:
    """Return the diagnosis of a library that the loader does not find, if it is known."""
    library = match[1]
    if library == DRIVER:
        return diagnose_driver()
    return diagnose_missing_libraries([library])


KNOWN_FAILURES: KnownFailures = {
    r"'numpy' has no attribute 'bool'|np\.bool\b": Diagnosis(
        "MXNet 1.9.1 uses np.bool, which NumPy 1.24 removed",
        "pip install 'numpy<1.24'",
        "versions",
    ),
    r"\bPZERO\b": Diagnosis(
        "MXNet 1.9.1 uses np.PZERO, which NumPy 2 removed",
        "pip install 'numpy<1.24'",
        "versions",
    ),
    r"No module named 'distutils": Diagnosis(
        "MXNet 1.9.1 uses distutils, which Python 3.12 removed: it takes Python 3.8 to 3.11",
        CPU_ENVIRONMENT,
        "versions",
    ),
    r"no kernel image is available": Diagnosis(
        "MXNet 1.9.1 holds machine code for GPUs of compute capability 5.0 to 8.9, and nothing "
        "that other GPUs "
        "could translate: it runs on this machine's CPU only",
        MXNET_ON_CPU,
        "no-code-for-gpu",
    ),
    r"driver version is insufficient|driver on your system is too old": Diagnosis(
        "the NVIDIA driver is older than CUDA 11, which MXNet's build for CUDA 11.2 needs: update "
        "the driver, "
        "or stay on the CPU",
        MXNET_ON_CPU,
        "driver-too-old",
    ),
    r"undefined symbol: nccl": Diagnosis(
        "the NCCL that is loaded is not the one of CUDA 11: the wheels of CUDA 11, 12 and 13 "
        "overwrite each other",
        "pip install --force-reinstall --no-deps nvidia-nccl-cu11==2.21.5",
        "other-nccl",
    ),
    r"find\(\"(DMLC|PS)_": Diagnosis(
        "some, not all, variables of MXNet's key-value store were left in the environment",
        UNSET_ROLE,
        "variables",
    ),
    r"lib(armpl|amath|astring)\w*\.so": Diagnosis(
        "MXNet's wheel for ARM needs the Arm Performance Libraries, which no package brings; "
        "Debian's OpenBLAS has what it calls",
        ARM_LIBRARIES,
        "libraries-missing",
    ),
    r"lib(gomp|quadmath)\.so\.\d: cannot open shared object file": Diagnosis(
        "MXNet needs GCC's libraries, which a small Debian lacks",
        "sudo apt-get install libgfortran5 libgomp1",
        "libraries-missing",
    ),
    r"(lib[\w.+-]+\.so[\d.]*): cannot open shared object file": _missing_library,
}


def _absent(python: tuple[int, ...]) -> Diagnosis | None:
    """Return what to do if this Python is too new for MXNet; None if it is not."""
    if python < FIRST_PYTHON_WITHOUT_MXNET:
        return None
    version = ".".join(map(str, python[:2]))
    cause = f"MXNet is not installed, and MXNet 1.9.1 needs Python 3.11, not {version}"
    cause += ": `uv python install 3.11` brings one, which `make demo` finds"
    return Diagnosis(cause, CPU_ENVIRONMENT, "versions")


def _harmful_variables(environment: Mapping[str, str]) -> Mapping[str, Diagnosis]:
    """Return the diagnosis of a DMLC_ROLE with which importing MXNet never returns."""
    role = environment.get(ROLE)
    if role not in SERVING:
        return {}
    cause = f"{ROLE}={role} makes `import mxnet` serve other processes for good"
    return {ROLE: Diagnosis(cause, UNSET_ROLE, "variables")}


def _gpus() -> Gpus:
    """Return the GPUs that MXNet finds, or why it can use none."""
    import mxnet as mx

    if not mx.runtime.Features().is_enabled("CUDA"):
        return Gpus()
    try:
        count: int = mx.context.num_gpus()
    except Exception as error:
        return Gpus("CUDA", failure=failure_of("mxnet", error))
    devices = tuple(Gpu(index, None, _memory(index), None) for index in range(count))
    return Gpus("CUDA", devices)


def _memory(index: int) -> int | None:
    """Return the bytes of a GPU's memory; None if MXNet cannot use the GPU."""
    import mxnet as mx

    try:
        _, total_bytes = mx.context.gpu_memory_info(index)
    except mx.MXNetError:
        return None
    return int(total_bytes)


INSTALLATION = Installation(
    module="mxnet",
    engines=("async", "sync"),
    numpy="<1.24",
    absent=_absent,
    known_failures=KNOWN_FAILURES,
    harmful_variables=_harmful_variables,
    gpus=_gpus,
    cuda_build=f"pip uninstall --yes mxnet && {INSTALL}",
)


def load_cuda_libraries() -> None:
    """Load the libraries that MXNet's CUDA build needs; do nothing if that build is not installed.

    A library comes from its wheel if the wheel is installed, and else from the system's loader.
    Raises InstallationError if the driver is missing, if libraries are missing, damaged or
    overwritten by those of another CUDA, and if MXNet's CPU build is installed too.
    """
    if _installed_distribution(MXNET_CUDA_PACKAGE) is None:
        return
    if _installed_distribution(MXNET_CPU_PACKAGE):
        cause = (
            f"{MXNET_CPU_PACKAGE} and {MXNET_CUDA_PACKAGE} are both installed, and overwrite "
            "each other's files"
        )
        raise _error(
            cause, f"pip uninstall --yes {MXNET_CPU_PACKAGE} {MXNET_CUDA_PACKAGE} && {INSTALL}"
        )
    try:
        ctypes.CDLL(DRIVER, ctypes.RTLD_LOCAL)
    except OSError as error:
        reason = "not found" if ABSENT.search(str(error)) else str(error)
        raise InstallationError(diagnose_driver(reason)) from error
    missing: list[str] = []
    for wheel in WHEELS:
        for soname in wheel.sonames:
            path = _path(wheel, soname) or soname
            try:
                # Local: its functions must not replace those of another CUDA.
                ctypes.CDLL(path, ctypes.RTLD_LOCAL)
            except OSError as error:
                match = ABSENT.search(str(error))
                if match is None:
                    raise _error(f"{soname} cannot be loaded ({error})", wheel.reinstall) from error
                # The library itself, or another one that it needs.
                missing_soname = match[1]
                if missing_soname not in missing:
                    missing.append(missing_soname)
    diagnosis = diagnose_missing_libraries(missing)
    if diagnosis is not None:
        raise InstallationError(diagnosis)


def _path(wheel: Wheel, soname: str) -> str | None:
    """Return the path of a library in its wheel; None if the wheel is not installed or lacks it.

    Raises InstallationError if the file has changed since the wheel was installed.
    """
    distribution = _installed_distribution(wheel.name)
    if distribution is None:
        return None
    for file in distribution.files or ():
        if file.name == soname:
            path = Path(str(file.locate()))
            # A wheel's list of its files holds their sizes; two builds of a library differ in
            # theirs.
            if not path.exists() or file.size not in (None, path.stat().st_size):
                raise _overwritten(wheel, str(file))
            return str(path)
    return None


def _overwritten(wheel: Wheel, file: str) -> InstallationError:
    """Return the error of a wheel's file that is not as it was installed."""
    other_owners: set[str] = set()
    for distribution in distributions():
        files = {str(installed_file) for installed_file in distribution.files or ()}
        if file in files and distribution.name != wheel.name:
            other_owners.add(distribution.name)
    if not other_owners:
        return _error(f"{file} is not as {wheel.name} installed it", wheel.reinstall)
    names = " ".join(sorted(other_owners))
    return _error(
        f"{file} of {wheel.name} was overwritten by {names}: {MXNET_CUDA_PACKAGE} and a CUDA build "
        "of another framework need an environment each",
        f"pip uninstall --yes {names} && {wheel.reinstall}",
    )


def _error(cause: str, command: str) -> InstallationError:
    return InstallationError(Diagnosis(cause, command, "libraries-changed"))


def _installed_distribution(name: str) -> Distribution | None:
    """Return an installed distribution by its name; None if it is not installed."""
    return next(iter(distributions(name=name)), None)
