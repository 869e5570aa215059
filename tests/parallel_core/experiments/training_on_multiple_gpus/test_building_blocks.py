"""The building blocks show the right values, and name what is wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import parallel_core
from backends import Array, Backend, Device
from parallel_core.experiments.training_on_multiple_gpus.building_blocks import verdict as about_blocks
from parallel_core.experiments.training_on_multiple_gpus.first_losses import enlarged_start

SMALL: dict[str, Any] = {"rounds": 2}


def test_every_building_block_shows_its_values(backend: Backend) -> None:
    result = parallel_core.run_building_blocks(backend, rounds=1)
    assert result.problems == ()
    parameters, even, uneven, times = result.notes
    assert times.startswith("Until all was done, the verbs took: get_params ")
    assert result.answer is not None
    summed, rebound, shared = result.answer.sentences
    assert "b1 is [0, 0, 0], and its gradient [0, 0, 0]" in parameters
    assert "its gradient is not zero" in parameters
    assert "hold [[1, 1]] and [[2, 2]], after it [[3, 3]] and [[3, 3]]" in summed
    assert "cpu:2 gets [[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]" in even
    assert "5 rows over 2 devices are 3 and 2; 1 row over 3 is 1, 0 and 0" in uneven
    assert "leaves gradients [[3, 3]] and [[2, 2]], and a step from 0 gives" in rebound
    assert "gives parameters [[-1.5, -1.5]] and [[-1, -1]]; after what `allreduce` returns" in rebound
    assert rebound.endswith(" both are [[-1.5, -1.5]].")
    assert "they are at [[-1, -1]] and [[-1, -1]]" in shared
    assert "leaves them at [[-0.5, -0.5]] and [[0, 0]]" in shared
    assert result.explanation.startswith("All 6 examples gave the values that must come out.")


def split_backwards(backend: Backend) -> Callable[..., tuple[Array, ...]]:
    split = backend.split_and_load
    return lambda x, devices: split(x, devices)[::-1]


def copy_of_something_else(backend: Backend) -> Callable[..., Array]:
    def copy(_: Array, device: Device) -> Array:
        return backend.asarray(np.ones((1, 2), dtype=np.float32), device)

    return copy


@pytest.mark.parametrize(
    ("verb", "broken", "wrong"),
    [
        ("allreduce", lambda _: tuple, ["allreduce of 1s and 2s", "rebinding list items"]),
        ("split_and_load", split_backwards, ["an even split", "uneven splits"]),
        ("copy_to", copy_of_something_else, ["shared memory"]),
    ],
)
def test_a_verb_that_is_wrong_makes_the_building_blocks_invalid(
    backend: Backend, verb: str, broken: Callable[[Backend], Any], wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, verb, broken(backend))
    result = parallel_core.run_building_blocks(backend, rounds=1)
    (problem,) = result.problems
    assert problem.startswith(f"the values of {' and '.join(map(repr, wrong))} differ from NumPy's by ")
    assert result.checks["max_relative_error"] >= 1e-4
    assert f"{len(wrong)} of 6 examples gave wrong values: {wrong[0]!r}" in result.explanation
    assert result.answer is not None
    assert result.answer.sentences == (f"No answer: the result is invalid, because {problem}.",)


def test_parameters_of_another_seed_make_the_building_blocks_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "parallel_core.experiments.training_on_multiple_gpus.building_blocks.demonstrations"
    monkeypatch.setattr(f"{module}.get_params", lambda backend, device: backend.asarray(enlarged_start(1, 1), device))
    (problem,) = parallel_core.run_building_blocks(backend, rounds=1).problems
    assert problem.startswith("the values of 'parameters on a device' differ ")


def test_building_blocks_name_what_is_wrong() -> None:
    assert about_blocks([], 6, "So it is.") == "All 6 examples gave the values that must come out. So it is."
    assert about_blocks(["a", "b"], 6, "So it is.") == "2 of 6 examples gave wrong values: 'a' and 'b'."
