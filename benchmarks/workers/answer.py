"""How a worker takes its arguments and gives its times: JSON both ways, in the keys of `parallel-core run --json`."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from backends.installation.kernels import libraries_of
from parallel_core.measurement.result import Case
from parallel_core.system.formatting import library_in_words

__all__ = ["answer", "compose"]

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
    cases: Iterable[Case],
    versions: Mapping[str, str],
    problems: Sequence[str] = (),
    metrics: Mapping[str, float] | None = None,
) -> Answer:
    """Make an answer of cases, figures, versions by framework, and what is wrong with it."""
    return {
        "cases": [{"name": case.name, "seconds": list(case.seconds)} for case in cases],
        "metrics": dict(metrics or {}),
        "versions": dict(versions),
        "problems": list(problems),
    }
