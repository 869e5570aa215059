"""Try a framework in a separate process, which may block, or die of it.

`python -m backends.installation.probe mxnet async` prints one line of JSON. Importing a framework
may abort, block, or change how many threads another one takes. Such a process, under a deadline,
finds out whether it works.

Whether it can compute on a GPU shows only if it does. A framework's binary holds machine code for
some GPUs only, and it may find a GPU without holding code for it: MXNet 1.9.1 has none for compute
capability 9.0 and later, and fails at the first operator.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from backends.errors import BackendError, ComputationError
from backends.installation.frameworks import Diagnosis, Gpus, failure_of, installation_of
from backends.installation.kernels import Kernels, Product, kernels_of, product_of
from backends.registry import load

DEFAULT_ENGINE = "default"
"""Stands for a backend's own default engine."""
MAX_GPU_SECONDS = 120.0
"""Importing a framework with its CUDA libraries from a cold disk takes most of it."""
NO_CODE = ("no kernel image is available", "invalid device function")
"""CUDA's messages, in lower case, for a binary that has no machine code for a GPU."""

_probing_gpu = False


@dataclass(frozen=True)
class Probe:
    """The outcome of loading a framework with one engine and multiplying small matrices.

    `failure` is None if it works. `imported` is whether the framework's import, which is the same
    for every engine, succeeded; `kernels` are the libraries that compute for it on a CPU, and
    `product` is how fast they do on one core.
    """

    framework: str
    engine: str
    version: str = ""
    gpus: Gpus = field(default_factory=Gpus)
    failure: Diagnosis | None = None
    imported: bool = True
    kernels: tuple[Kernels, ...] = ()
    product: Product | None = None


def probe(framework: str, engine: str) -> Probe:
    """Load a backend on one CPU device, multiply matrices on it, and list the GPUs that it finds.

    Imports the framework into this process. `engine` is `async`, `sync` or DEFAULT_ENGINE. Never
    raises.
    """
    x = np.array([[1, 2], [3, 4]], dtype=np.float32)
    installation = installation_of(framework)
    engine_to_load = None if engine == DEFAULT_ENGINE else engine
    try:
        backend = load(framework, 1, "cpu", engine_to_load, threads_per_device=1)
        loaded = backend.asarray(x, backend.devices[0])
        product = backend.to_numpy(backend.launch(backend.ops.matmul, loaded, loaded))
        if not np.array_equal(product, x @ x):
            raise BackendError(
                f"the multiplication of two small matrices is wrong: {product.tolist()}"
            )
        return Probe(
            framework,
            backend.engine,
            str(backend.version),
            installation.gpus(),
            kernels=kernels_of(backend),
            product=product_of(backend),
        )
    except Exception as error:
        module_name = installation.module or framework
        imported = module_name in sys.modules
        return Probe(framework, engine, failure=failure_of(framework, error), imported=imported)


@cache
def reason_against(framework: str, index: int, python: str = sys.executable) -> str:
    """Return why a framework cannot compute on a GPU, empty if it can.

    Starts a process of `python`, once for each GPU. Within such a process the reason is always
    empty.
    """
    if _probing_gpu:
        return ""
    code = (
        "from backends.installation.probe import compute_on_gpu; "
        f"compute_on_gpu({framework!r}, {index})"
    )
    command = [python, "-c", code]
    try:
        completed = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=MAX_GPU_SECONDS,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return f"a sum of two numbers took more than {MAX_GPU_SECONDS:.0f} s there"
    return reason_of_failure(completed.returncode, completed.stderr)


def reason_of_failure(status: int, errors: str) -> str:
    """Return why a probe failed, empty if it did not.

    `status` is the exit status of its process, and `errors` its standard error.
    """
    if status == 0:
        return ""
    if status < 0:
        return f"the process died of {signal.Signals(-status).name}"
    if any(words in errors.lower() for words in NO_CODE):
        return f"its binary holds no code for this GPU: {NO_CODE[0]}"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {status}"


def compute_on_gpu(framework: str, index: int) -> None:
    """Add two numbers with a framework on a GPU; exit with the reason if that fails."""
    global _probing_gpu
    _probing_gpu = True
    try:
        backend = load(framework, [f"gpu:{index}"], "gpu")
        (device,) = backend.devices
        ones = backend.asarray(np.ones(1, dtype=np.float32), device)
        total = backend.to_numpy(backend.launch(backend.ops.add, ones, ones))
    except (BackendError, ComputationError) as error:
        sys.exit(" ".join(str(error).split()))
    if total[0] != 2:
        sys.exit(f"1 + 1 gave {total[0]} there")


def main() -> None:
    """Print a probe in one line of JSON; the program's arguments are a framework and an engine."""
    # A machine that is lent for its GPU lacks it, and asks only for a sum there.
    import msgspec

    line = msgspec.json.encode(probe(*sys.argv[1:]))
    # What frameworks print while they are imported may lack a line break at its end.
    sys.stdout.buffer.write(b"\n" + line + b"\n")
    sys.stdout.flush()
    # A framework's shutdown is not probed, and may take long.
    os._exit(0)


if __name__ == "__main__":
    main()
