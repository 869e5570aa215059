"""The suite finds what is wrong with a backend, and what it prints shows it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from backends import Backend, BackendError
from backends.conformance import Conformance, Found, Limits, search
from tests.backends.conformance import broken_backends

LIMITS = Limits(seed=1, programs=400, devices=3, deadline=3)


def first_found(load: Callable[[int], Backend]) -> Found:
    return next(search(load, LIMITS))


def run_text(found: Found, load: Callable[[int], Backend]) -> dict[str, Any]:
    """Run what is printed, as a person would who pastes it into a file."""
    names: dict[str, Any] = {"make": load}
    exec(found.text("make({})"), names)
    return names


def test_numpy_equals_itself() -> None:
    told: list[int] = []
    assert not list(search(broken_backends.sound, Limits(programs=40), lambda done, _: told.append(done)))
    assert told == list(range(41))


@pytest.mark.parametrize(
    "load",
    [
        broken_backends.counting_twice,
        broken_backends.copying_nothing,
        broken_backends.dividing_from_the_end,
    ],
)
def test_wrong_numbers_are_found_and_printed_as_a_short_program(load: Callable[[int], Backend]) -> None:
    found = next(found for found in search(load, LIMITS) if found.finding.kind == "gives wrong numbers")
    assert len(found.program.statements) <= 15
    assert found.finding.place is not None
    (name,) = found.program.statements[found.finding.place].defines
    own, right = (run_text(found, one)[name] for one in (load, broken_backends.sound))
    assert str(own) != str(right)


def test_what_writes_over_what_it_reads_is_found() -> None:
    # NumPy may refuse what is printed here: a copy to memory from which another one is read.
    every = search(broken_backends.writing_over_what_it_reads, LIMITS)
    found = next(found for found in every if found.finding.kind == "gives wrong numbers")
    assert len(found.program.statements) <= 15
    assert found.finding.place is not None
    assert "out=" in found.program.statements[found.finding.place].source


def test_a_failure_that_is_lost_is_found() -> None:
    what = "raises no ComputationError"
    found = next(found for found in search(broken_backends.losing_failures, LIMITS) if what in found.finding.what)
    assert len(found.program.statements) <= 4


def test_a_hang_is_found_with_each_thread_s_stack() -> None:
    found = next(search(broken_backends.hanging, replace(LIMITS, deadline=1)))
    assert found.finding.what == "hangs"
    assert found.finding.place is not None
    assert "allreduce" in found.program.statements[found.finding.place].source
    assert "broken_backends.py" in found.text("load({})")


def test_a_crash_is_found() -> None:
    found = first_found(broken_backends.crashing)
    assert found.finding.what == "crashes the process (SIGSEGV)"
    assert "allreduce" in found.text("load({})")


def test_each_kind_is_reported_once() -> None:
    limits = Limits(seed=1, programs=60, devices=2)
    kinds = [found.finding.kind for found in search(broken_backends.counting_twice, limits)]
    assert kinds == ["gives wrong numbers"]


def test_the_time_ends_the_search() -> None:
    assert list(search(broken_backends.sound, Limits(seconds=0.1))) == []


class TestSound(Conformance):
    """What an author of a backend writes."""

    limits = Limits(programs=10)

    @staticmethod
    def load(devices: int) -> Backend:
        return broken_backends.sound(devices)


def test_the_class_for_authors_fails_with_the_program() -> None:
    class Broken(Conformance):
        limits = LIMITS
        load = staticmethod(broken_backends.counting_twice)

    with pytest.raises(AssertionError, match=r"Broken\.load\(3\)"):
        Broken().test_random_programs_give_what_numpy_gives()


def test_a_backend_that_ends_its_process_while_it_loads_is_told_in_one_line() -> None:
    with pytest.raises(BackendError, match=r"ended before it had loaded the backend \(exit status 3\)"):
        next(search(broken_backends.ending_the_process, LIMITS))
