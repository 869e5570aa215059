"""What an experiment cannot do is refused, and a verb or an operator that is wrong makes its result invalid."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from backends import Backend
from backends.arrays import tree_map
from backends.numpy import ops
from parallel_core import RequestError
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.asynchronous_computation import increments
from tests.parallel_core.experiments.small import small


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
        ("small-ops", {"sizes": ()}, "--sizes 8,64,512"),
        ("allreduce", {"algorithms": ("butterfly",)}, "unknown algorithm 'butterfly'"),
        ("allreduce", {"algorithms": ()}, "no algorithm"),
        ("allreduce", {"sizes": ()}, "no size"),
        ("allreduce", {"sizes": (2**60,)}, "choose smaller --sizes"),
        ("batch-norm", {"rows": 7}, "choose at least 8"),
        ("batch-scaling", {"batch_size": 20, "steps": 10}, "10 steps of 3 × 20 images are more than the 300 .*--steps"),
        ("partitioning", {"narrow": 2, "wide": 1}, "must not be wider"),
        ("partitioning", {"batch": 2}, "leaves one of 3 devices or 2 micro-batches without rows"),
        ("partitioning", {"batch": 4, "micro_batches": 5}, "or 5 micro-batches without rows"),
        ("partitioning", {"devices": 9}, "8 channels for 9 devices"),
    ],
)
def test_what_cannot_be_done_is_refused(
    load: Callable[[int], Backend], experiment: str, options: dict[str, Any], message: str
) -> None:
    asked = {"devices": 3, **small(experiment), **options}
    with pytest.raises(RequestError, match=message):
        EXPERIMENTS[experiment].run(load(asked.pop("devices")), **asked)


BROKEN: Mapping[str, Callable[..., Any]] = {
    "matmul": ops.add,
    "add": ops.multiply,
    "copy_to": lambda x, *_, **__: tree_map(np.ones_like, x),
    # Every device keeps what it has.
    "allreduce": tuple,
}
CHANGES, LOSSES = "changes of the parameters differ", "first losses differ"


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("broken", "experiment", "wrong"),
    [
        *(
            ("matmul", name, ["products differ"])
            for name in ("async", "barriers", "eager-cpu", "parallel", "small-ops")
        ),
        ("matmul", "independent-ops", ["products differ", "products in a chain differ"]),
        ("matmul", "overlap", ["copied products differ"]),
        ("matmul", "three-way", ["products or copies differ"]),
        ("matmul", "dependencies", ["results differ"]),
        *(("add", name, ["increments differ"]) for name in ("async", "cost-model")),
        ("copy_to", "overlap", ["copied products differ"]),
        ("copy_to", "three-way", ["products or copies differ"]),
        *(("copy_to", name, ["results differ"]) for name in ("dependencies", "graph")),
        *((verb, "allreduce", ["sums differ"]) for verb in ("copy_to", "allreduce")),
        *(("allreduce", name, [CHANGES]) for name in ("batch-norm", "partitioning")),
        ("allreduce", "batch-scaling", [LOSSES]),
        ("allreduce", "learning-rates", [LOSSES, f"with the same batch the {LOSSES}"]),
        ("allreduce", "data-parallel", [LOSSES, "the devices' parameters"]),
        ("allreduce", "evaluate", ["2 devices counted "]),
    ],
)
def test_what_is_wrong_makes_the_result_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, broken: str, experiment: str, wrong: list[str]
) -> None:
    # How much memory a queue holds is tested with `async`.
    monkeypatch.setattr(increments, "SIDE", 8)
    if hasattr(backend, broken):
        monkeypatch.setattr(backend, broken, BROKEN[broken])
    else:
        # NumPy's operators are also what values are compared with.
        own = ModuleType("broken")
        vars(own).update({**vars(ops), broken: BROKEN[broken]})
        monkeypatch.setattr(backend, "ops", own)
    problems = EXPERIMENTS[experiment].run(backend, **small(experiment)).problems
    assert len(problems) >= len(wrong)
    for problem, begin in zip(problems, wrong, strict=False):
        assert problem.startswith(begin)
