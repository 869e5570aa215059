"""Load the CUDA 11 libraries for MXNet's CUDA build: out of their wheels, or where there are none from the system.

MXNet's library names what it needs (`libcudart.so.11.0`) and leaves it to the system's loader to find it, which looks
into no wheel. A library of that name which is in the process already is taken as it is.
"""

import ctypes
import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from backends.installation.cuda_wheels import CUDA_BUILD, DRIVER, WHEELS, Wheel
from backends.installation.known_failures import Explanation, InstallationError, explain_driver, explain_missing

__all__ = ["load_cuda_libraries"]

CPU_BUILD = "mxnet"
ABSENT = re.compile(r"(\S+): cannot open shared object file: No such file")
INSTALL = f"pip install 'parallel-core[{CUDA_BUILD}]'"


def load_cuda_libraries() -> None:
    """Load what MXNet's CUDA build is linked against; do nothing where that build is not installed.

    A library comes out of its wheel where that is installed, and from the system's loader elsewhere. Raises
    InstallationError for a missing driver, for libraries that are missing, damaged or overwritten by those of another
    CUDA, and where MXNet's CPU build is installed too.
    """
    if _installed(CUDA_BUILD) is None:
        return
    if _installed(CPU_BUILD):
        cause = f"{CPU_BUILD} and {CUDA_BUILD} are both installed, and overwrite each other's files"
        raise _failure(cause, f"pip uninstall --yes {CPU_BUILD} {CUDA_BUILD} && {INSTALL}")
    _load_driver()
    absent = []
    for wheel in WHEELS:
        for soname in wheel.sonames:
            try:
                # For whoever asks for its name, and nobody else: its functions must not stand in for another CUDA's.
                ctypes.CDLL(_path(wheel, soname) or soname, ctypes.RTLD_LOCAL)
            except OSError as error:
                found = ABSENT.search(str(error))
                if found is None:
                    raise _failure(f"{soname} cannot be loaded ({error})", _reinstall(wheel)) from error
                absent.append(found[1])
    if absent and (explanation := explain_missing(list(dict.fromkeys(absent)))):
        raise InstallationError(explanation)


def _load_driver() -> None:
    try:
        ctypes.CDLL(DRIVER, ctypes.RTLD_LOCAL)
    except OSError as error:
        explanation = explain_driver() if ABSENT.search(str(error)) else explain_driver(str(error))
        raise InstallationError(explanation) from error


def _path(wheel: Wheel, soname: str) -> str | None:
    """Find a library in its wheel, untouched since it was installed; None where the wheel is not, or lacks it."""
    installed = _installed(wheel.name)
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
        f"{file} of {wheel.name} was overwritten by {names}: {CUDA_BUILD} and a CUDA build of another framework need "
        f"an environment each",
        f"pip uninstall --yes {names} && {_reinstall(wheel)}",
    )


def _reinstall(wheel: Wheel) -> str:
    return f"pip install --force-reinstall --no-deps '{wheel.requirement}'"


def _failure(cause: str, command: str) -> InstallationError:
    return InstallationError(Explanation(cause, command))


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
