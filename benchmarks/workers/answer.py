"""How a worker takes its arguments and gives its times: JSON both ways, in the keys of `parallel-core run --json`."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from parallel_core.measurement.result import Case

__all__ = ["answer", "compose"]

Answer = dict[str, Any]


def answer(measure: Callable[..., Answer]) -> None:
    """Call `measure` with the arguments in the command line's JSON object and print what it returns."""
    print(json.dumps(measure(**json.loads(sys.argv[1]))))


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
