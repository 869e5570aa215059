"""How a worker takes its arguments and gives its times: JSON both ways, in the keys of `parallel-core run --json`.

And under which environment variables, which plain MXNet and PyTorch read when they are imported.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from backends.installation.kernels import CORE_TYPE, libraries_of
from backends.mxnet.kernels import core_type_to_set
from parallel_core.system.formatting import library_in_words

Answer = dict[str, Any]


def answer(measure: Callable[..., Answer]) -> None:
    """Call `measure` with the arguments in the command line's JSON object and print what it returns.

    It is joined by `kernels`, the libraries that computed for each framework that it names, in words.
    """
    measured = measure(**json.loads(sys.argv[1]))
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    kernels = {
        name: [library_in_words(asdict(one)) for one in libraries_of(name, threads)]
        for name in measured["versions"]
        if name in sys.modules
    }
    print(json.dumps({**measured, "kernels": kernels}))


def compose(
    seconds: Mapping[str, Sequence[float]],
    versions: Mapping[str, str],
    problems: Sequence[str] = (),
    metrics: Mapping[str, float] | None = None,
) -> Answer:
    """Make an answer of seconds by case, versions by framework, what is wrong, and figures."""
    return {
        "cases": [{"name": name, "seconds": list(taken)} for name, taken in seconds.items()],
        "metrics": dict(metrics or {}),
        "versions": dict(versions),
        "problems": list(problems),
    }


def set_environment(threads: int) -> None:
    """Set what our MXNet backend sets too: threads of an operator, workers of a device, scratch memory, kernels.

    With less scratch memory plain MXNet is slower on two devices than on one. Bulk execution, which we switch off,
    stays as MXNet has it.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["MXNET_CPU_WORKER_NTHREADS"] = "1"
    os.environ["MXNET_CPU_TEMP_COPY"] = "256"
    os.environ.pop("MXNET_ENGINE_TYPE", None)
    if core_type := core_type_to_set(as_shipped=False):
        os.environ[CORE_TYPE] = core_type
