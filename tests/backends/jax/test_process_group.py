"""JAX's groups of processes: their sums in two processes, and what a rank finds when the other one dies."""

from collections.abc import Callable
from pathlib import Path

import pytest

from backends.jax.process_group import by_another_rank
from tests.backends.jax.ranks import end, start

GONE = "GroupError another rank is gone or does not answer (gloo: "


@pytest.fixture(autouse=True)
def jax_is_there(require: Callable[[str], None]) -> None:
    require("jax")


def test_a_tuple_of_several_types_and_shapes_is_one_exchange(engine: str, root: Path) -> None:
    """Nothing but what the program prints goes to standard output, where gloo says that it is connected."""
    expected = [
        "float32 () 6.0",
        "float32 (0, 3) 0.0",
        "float64 (2, 3) 36.0",
        "int32 (3,) 18",
        "int64 (1,) 6",
        "float32 (40, 50) 12000.0",
    ]
    for status, (*sums, refusal), errors in end(start("sums_all_kinds", engine, root)):
        assert (status, sums, errors) == (0, expected, "")
        assert "allreduce has no sum of bool" in refusal


def test_a_sum_is_queued_and_python_goes_on(root: Path) -> None:
    """A short one too, which XLA would compute on the calling thread. If it blocked, neither rank would end."""
    ranks = start("sums_what_another_rank_sums_later", "async", root)
    assert ranks[0].stdout is not None
    assert ranks[0].stdout.readline() == "launched\n"
    assert ranks[1].stdin is not None
    print(file=ranks[1].stdin, flush=True)
    assert end(ranks) == [(0, ["[2.0, 2.0, 2.0]"], "")] * 2


def test_who_waits_for_a_sum_with_a_rank_that_died_finds_that_it_is_gone(engine: str, root: Path) -> None:
    (status, lines, errors), (other, _, _) = end(start("loses_a_rank", engine, root))
    assert (status, errors, other) == (0, "", 9)
    (line,) = lines
    assert line.startswith(GONE)


def test_a_rank_that_dies_while_the_ranks_join(root: Path) -> None:
    """JAX's own service would end the survivor by abort."""
    first, (status, _, _) = end(start("loses_a_rank_that_joins", "async", root))
    assert first == (0, ["GroupError rank 1 has gone while the ranks were joining"], "")
    assert status == 9


def test_only_what_gloo_says_is_another_rank_s_doing() -> None:
    failed = "Gloo all-reduce failed: [external/gloo/pair.cc:538] Read error [::1]:4: Broken pipe"
    for message in (f"UNKNOWN: {failed}", f"INTERNAL: Error dispatching computation: {failed}"):
        found = by_another_rank(RuntimeError(message))
        assert str(found) == "another rank is gone or does not answer (gloo: Read error [::1]:4: Broken pipe)"
    assert by_another_rank(RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 4096 bytes.")) is None
