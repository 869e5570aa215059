"""Find out whether a framework can compute on a GPU, by computing there, in a process that may die of it.

A framework's binary holds machine code for some GPUs only, and it may find a GPU without holding code for it: MXNet
1.9.1 has none for compute capability 9.0 and later, and fails at the first operator.
"""

import signal
import subprocess
import sys
from functools import cache

import numpy as np

from backends.errors import BackendError, ComputationError

MAX_PROBE_SECONDS = 120.0
"""Importing a framework with its CUDA libraries from a cold disk takes most of it."""
NO_CODE = ("no kernel image is available", "invalid device function")
"""CUDA's messages, in lower case, for a binary that has no machine code for a GPU."""

_probing = False


@cache
def reason_against(framework: str, index: int) -> str:
    """Return why a framework cannot compute on a GPU, empty if it can; starts a process, once for each GPU.

    Within such a process it is always empty.
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
    return reason_of_failure(done.returncode, done.stderr)


def reason_of_failure(status: int, errors: str) -> str:
    """Return why a probe failed, empty if it did not."""
    if status < 0:
        return f"the process died of {signal.Signals(-status).name}"
    if status and any(words in errors.lower() for words in NO_CODE):
        return f"its binary holds no code for this GPU: {NO_CODE[0]}"
    return [f"exit status {status}", *filter(None, map(str.strip, errors.splitlines()))][-1] if status else ""


def main() -> None:
    """Add two numbers with a framework on a GPU, both named by the arguments; exit with the reason if that fails."""
    global _probing
    _probing = True
    framework, index = sys.argv[1:]
    # The registry imports the devices, which import this module.
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
