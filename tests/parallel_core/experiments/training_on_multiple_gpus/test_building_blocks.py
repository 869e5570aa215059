"""The building blocks show the right values, and a verb that is wrong makes them invalid."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import parallel_core
from backends import Backend
from parallel_core.experiments.training_on_multiple_gpus import building_blocks
from parallel_core.experiments.training_steps import enlarged_start


def test_every_building_block_shows_its_values(backend: Backend) -> None:
    result = parallel_core.run_building_blocks(backend, rounds=1)
    assert result.problems == ()
    assert result.bands == {"right_examples": "right"}
    assert result.metrics["right_examples"] == len(result.notes) == 6
    summed, rebound, shared, parameters, even, uneven = (note.split("[", 1)[-1] for note in result.notes)
    assert summed.count("[1, 1]") == summed.count("[2, 2]") == 1
    assert summed.count("[3, 3]") == 2
    assert rebound.count("[-1.5, -1.5]") == 3
    assert shared.count("[-1, -1]") == 2
    assert shared.count("[-0.5, -0.5]") == 1
    assert parameters.startswith("0, 0, 0]")
    assert "[[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]" in even
    assert "3 and 2" in uneven


PAIR = np.ones((1, 2), dtype=np.float32)


@pytest.mark.parametrize(
    ("verb", "broken", "wrong"),
    [
        ("allreduce", lambda _, vectors: tuple(vectors), ["allreduce of 1s and 2s", "rebinding list items"]),
        ("split_and_load", lambda right, *args: right.split_and_load(*args)[::-1], ["an even split", "uneven splits"]),
        ("copy_to", lambda right, _, device: right.asarray(PAIR, device), ["shared memory"]),
    ],
)
def test_a_verb_that_is_wrong_makes_the_building_blocks_invalid(
    backend: Backend,
    load: Callable[[int], Backend],
    verb: str,
    broken: Callable[..., Any],
    wrong: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, verb, partial(broken, load(3)))
    result = parallel_core.run_building_blocks(backend, rounds=1)
    assert len(result.problems) == len(wrong)
    for problem, name in zip(result.problems, wrong, strict=True):
        assert repr(name) in problem
    assert result.checks["max_relative_error"] >= 1e-4
    assert (result.metrics["right_examples"], result.bands["right_examples"]) == (6 - len(wrong), "wrong")


def test_parameters_of_another_seed_make_the_building_blocks_invalid(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = enlarged_start(1, 1)
    monkeypatch.setattr(building_blocks, "get_params", lambda backend, device: backend.asarray(start, device))
    (problem,) = parallel_core.run_building_blocks(backend, rounds=1).problems
    assert "'parameters on a device'" in problem
