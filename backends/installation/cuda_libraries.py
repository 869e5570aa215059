"""Load the CUDA 11 libraries for MXNet's CUDA build: from their wheels, or from the system if there are none.

MXNet's library names what it needs (`libcudart.so.11.0`) and leaves it to the system's loader to find it, which does
not look into wheels. It takes a library of that name that is already in the process.
"""

import ctypes
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from backends.installation.cuda_wheels import (
    DRIVER,
    MXNET_CUDA_PACKAGE,
    WHEELS,
    Wheel,
    diagnose_driver,
    diagnose_missing_libraries,
)
from backends.installation.diagnosis import Diagnosis, InstallationError

__all__ = ["load_cuda_libraries"]

MXNET_CPU_PACKAGE = "mxnet"
ABSENT = re.compile(r"(\S+): cannot open shared object file: No such file")
INSTALL = f"pip install 'parallel-core[{MXNET_CUDA_PACKAGE}]'"


def load_cuda_libraries() -> None:
    """Load what MXNet's CUDA build is linked against; do nothing if that build is not installed.

    A library comes from its wheel if that is installed, and else from the system's loader. Raises InstallationError if
    the driver is missing, if libraries are missing, damaged or overwritten by those of another CUDA, and if MXNet's
    CPU build is installed too.
    """
    if _installed_distribution(MXNET_CUDA_PACKAGE) is None:
        return
    if _installed_distribution(MXNET_CPU_PACKAGE):
        cause = f"{MXNET_CPU_PACKAGE} and {MXNET_CUDA_PACKAGE} are both installed, and overwrite each other's files"
        raise _failure(cause, f"pip uninstall --yes {MXNET_CPU_PACKAGE} {MXNET_CUDA_PACKAGE} && {INSTALL}")
    try:
        ctypes.CDLL(DRIVER, ctypes.RTLD_LOCAL)
    except OSError as error:
        reason = "not found" if ABSENT.search(str(error)) else str(error)
        raise InstallationError(diagnose_driver(reason)) from error
    absent = []
    for wheel in WHEELS:
        for soname in wheel.sonames:
            try:
                # Local: its functions must not replace those of another CUDA.
                ctypes.CDLL(_path(wheel, soname) or soname, ctypes.RTLD_LOCAL)
            except OSError as error:
                missing = ABSENT.search(str(error))
                if missing is None:
                    raise _failure(f"{soname} cannot be loaded ({error})", _reinstall(wheel)) from error
                absent.append(missing[1])
    if absent and (diagnosis := diagnose_missing_libraries(list(dict.fromkeys(absent)))):
        raise InstallationError(diagnosis)


def _path(wheel: Wheel, soname: str) -> str | None:
    """Find a library in its wheel, unchanged since it was installed; None if the wheel is not installed or lacks it."""
    installed = _installed_distribution(wheel.name)
    for file in (installed and installed.files) or ():
        if file.name == soname:
            path = Path(str(file.locate()))
            # A wheel's list of its files holds their sizes; two builds of a library differ in theirs.
            if not path.exists() or file.size not in (None, path.stat().st_size):
                raise _overwritten(wheel, str(file))
            return str(path)
    return None


def _overwritten(wheel: Wheel, file: str) -> InstallationError:
    others = sorted({other.name for other in distributions() if any(str(one) == file for one in other.files or ())})
    others.remove(wheel.name)
    if not others:
        return _failure(f"{file} is not as {wheel.name} installed it", _reinstall(wheel))
    names = " ".join(others)
    return _failure(
        f"{file} of {wheel.name} was overwritten by {names}: {MXNET_CUDA_PACKAGE} and a CUDA build of another "
        "framework need an environment each",
        f"pip uninstall --yes {names} && {_reinstall(wheel)}",
    )


def _reinstall(wheel: Wheel) -> str:
    return f"pip install --force-reinstall --no-deps '{wheel.requirement}'"


def _failure(cause: str, command: str) -> InstallationError:
    return InstallationError(Diagnosis(cause, command))


def _installed_distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
