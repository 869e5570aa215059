"""What no experiment of the chapter can do is refused, and gradients that are not summed make its result invalid."""

from collections.abc import Callable
from typing import Any

import pytest

from backends import Backend
from parallel_core import RequestError
from parallel_core.experiments import EXPERIMENTS
from tests.parallel_core.experiments.small import small


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
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


@pytest.mark.parametrize(
    ("experiment", "wrong"),
    [
        ("batch-norm", ["changes of the parameters differ from NumPy's by "]),
        ("batch-scaling", ["first losses differ from NumPy's by "]),
        (
            "learning-rates",
            [
                "first losses differ from NumPy's by ",
                "with the same batch the first losses differ from one device's by ",
            ],
        ),
        ("partitioning", ["changes of the parameters differ from NumPy's by "]),
    ],
)
def test_gradients_that_are_not_summed_make_the_result_invalid(
    backend: Backend, experiment: str, wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "allreduce", tuple)
    problems = EXPERIMENTS[experiment].run(backend, **small(experiment)).problems
    for problem, begin in zip(problems, wrong, strict=False):
        assert problem.startswith(begin)
    assert len(problems) >= len(wrong)
