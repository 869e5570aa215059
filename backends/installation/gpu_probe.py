"""Find out whether a framework can compute on a GPU, by computing there: in a process that may die of it.

A framework's binary holds machine code for some GPUs only, and that it finds a GPU does not mean that it holds code for
it: MXNet 1.9.1 has none for compute capability 9.0 and later, and fails at the first operator.
"""

import ctypes
import signal
import subprocess
import sys
from functools import cache

import numpy as np

from backends.errors import BackendError, ComputationError

__all__ = ["compute_capability", "main", "reason_against", "reason_of_failure"]

MAX_PROBE_SECONDS = 120.0
"""Seconds; importing a framework with its CUDA libraries from a cold disk takes the most of it."""
# cuda.h
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76

_probing = False


@cache
def reason_against(framework: str, index: int) -> str:
    """Say why a framework cannot compute on a GPU, nothing if it can; starts a process, once for each GPU.

    In a probe itself nothing is ever said against a GPU.
    """
    if _probing:
        return ""
    command = [sys.executable, "-c", "from backends.installation.gpu_probe import main; main()", framework, str(index)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MAX_PROBE_SECONDS, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return f"a sum of two numbers took more than {MAX_PROBE_SECONDS:.0f} s there"
    return reason_of_failure(done.returncode, done.stderr, compute_capability(index))


def reason_of_failure(status: int, errors: str, capability: str | None) -> str:
    """Say in words why a probe failed, nothing if it did not: from its exit status and what it wrote of errors.

    `capability` is the GPU's, where it is known.
    """
    if status == 0:
        return ""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if status < 0:
        reason = f"the process died of {signal.Signals(-status).name}"
    elif missing := next((line for line in lines if _says_no_code(line)), ""):
        reason = missing
    else:
        reason = lines[-1] if lines else f"exit status {status}"
    told = f"its compute capability is {capability}: " if capability else ""
    return told + ("its binary holds no code for this GPU" if _says_no_code(reason) else reason)


def compute_capability(index: int) -> str | None:
    """Return a GPU's compute capability, such as `9.0`, from NVIDIA's driver; None where that does not tell."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    try:
        failed = (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(device), index)
            or driver.cuDeviceGetAttribute(ctypes.byref(major), CAPABILITY_MAJOR, device)
            or driver.cuDeviceGetAttribute(ctypes.byref(minor), CAPABILITY_MINOR, device)
        )
    except AttributeError:
        return None
    return None if failed else f"{major.value}.{minor.value}"


def main() -> None:
    """Add two numbers with a framework on a GPU, this process's arguments; exit with the reason where that fails."""
    global _probing
    _probing = True
    framework, index = sys.argv[1:]
    # Whoever chooses devices imports this module.
    from backends.registry import load

    try:
        backend = load(framework, [f"gpu:{index}"], "gpu")
        (device,) = backend.devices
        one = backend.asarray(np.ones(1, dtype=np.float32), device)
        two = backend.to_numpy(backend.launch(backend.ops.add, one, one))
    except (BackendError, ComputationError) as error:
        sys.exit(" ".join(str(error).split()))
    if two[0] != 2:
        sys.exit(f"1 + 1 gave {two[0]} there")


def _says_no_code(line: str) -> bool:
    return "no kernel image is available" in line or "invalid device function" in line.lower()
