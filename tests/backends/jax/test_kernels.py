"""What JAX computes with: it is named as a compiled program names it, and kept to one core while that is measured."""

import os
from collections.abc import Callable

import numpy as np
import pytest

import backends
from backends.jax.kernels import POOL, TASKS, libraries, one_thread


def affinities() -> dict[str, set[int]]:
    """Return the cores of the calling thread and of those of XLA's pools, by the number of the thread."""
    pools = [task.name for task in TASKS.iterdir() if (task / "comm").read_text().strip() == POOL]
    return {task: os.sched_getaffinity(int(task)) for task in ("0", *pools)}


def test_one_core_computes_while_it_is_measured_and_all_do_afterwards(
    require: Callable[[str], None], engine: str
) -> None:
    require("jax")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core cannot be told from all")
    backend = backends.load("jax", 1, "cpu", engine, threads_per_device=2)
    x = backend.asarray(np.ones(2), backend.devices[0])
    before = affinities()
    assert len(before) > 2
    with one_thread(backend, x):
        during = affinities()
    assert set(map(len, during.values())) == {1}
    assert len(set(map(tuple, during.values()))) == 1
    assert affinities() == before


def test_what_compiles_is_said_with_its_version_and_its_instructions(require: Callable[[str], None]) -> None:
    require("jax")
    import jaxlib

    multiplies, compiles, *_ = libraries(3)
    assert (compiles.library, compiles.version, compiles.threads) == ("XLA", jaxlib.__version__, 3)
    # XLA compiles for the processor that it runs on, as libraries choose.
    assert compiles.instruction_set == multiplies.instruction_set
