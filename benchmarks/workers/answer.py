"""A worker's answer, in the keys of `parallel-core run --json`.

And the environment variables under which it is given, which plain MXNet and PyTorch read when they
are imported.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from backends.installation.kernels import CORE_TYPE
from backends.mxnet.kernels import core_type_to_set


def compose(
    seconds: Mapping[str, Sequence[float]],
    versions: Mapping[str, str],
    problems: Sequence[str] = (),
    metrics: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Make an answer of seconds by case, versions by framework, what is wrong, and figures."""
    return {
        "cases": [{"name": name, "seconds": list(taken)} for name, taken in seconds.items()],
        "metrics": dict(metrics or {}),
        "versions": dict(versions),
        "problems": list(problems),
    }


def set_environment(threads: int) -> None:
    """Set what our MXNet backend sets too: threads of an operator, workers of a device, scratch
    memory, kernels.

    With less scratch memory plain MXNet is slower on two devices than on one. Bulk execution, which
    we switch off, stays as MXNet has it.
    """
    os.environ |= {
        "OMP_NUM_THREADS": str(threads),
        "MXNET_CPU_WORKER_NTHREADS": "1",
        "MXNET_CPU_TEMP_COPY": "256",
    }
    os.environ.pop("MXNET_ENGINE_TYPE", None)
    if core_type := core_type_to_set(as_shipped=False):
        os.environ[CORE_TYPE] = core_type
