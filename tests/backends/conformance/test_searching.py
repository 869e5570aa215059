"""The suite finds what is wrong with a backend, and what it prints shows it."""

from collections.abc import Callable

import numpy as np
import pytest

from backends import Backend, BackendError
from backends.conformance import Conformance, Found, Limits, search, searching
from backends.conformance.programs import Program, Statement
from backends.conformance.running import run
from tests.backends.conformance import broken_backends

LIMITS = Limits(seed=2, programs=400, devices=3, deadline=3)


@pytest.fixture
def as_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave programs as long as they are drawn: a hang or a crash costs a process each time."""
    monkeypatch.setattr(searching, "MAX_SECONDS", 0)


def found_of(load: Callable[[int], Backend], kind: str) -> tuple[Found, str]:
    """Return the first finding of a kind, with the source of the statement that shows it."""
    found = next(found for found in search(load, LIMITS) if kind in found.finding.what)
    place = found.finding.place
    return found, "" if place is None else found.program.statements[place].source


def test_numpy_equals_itself_until_a_limit_is_reached() -> None:
    told: list[int] = []
    assert not list(search(broken_backends.sound, Limits(programs=40), lambda done, _: told.append(done)))
    assert told == list(range(41))
    assert list(search(broken_backends.sound, Limits(seconds=0.1))) == []


@pytest.mark.parametrize(
    "load", [broken_backends.counting_twice, broken_backends.copying_nothing, broken_backends.dividing_from_the_end]
)
def test_wrong_numbers_are_found_and_printed_as_a_short_program(load: Callable[[int], Backend]) -> None:
    """What is printed shows it, as it would to a person who pastes it into a file."""
    found, source = found_of(load, "gives wrong numbers")
    assert len(found.program.statements) <= 15
    text = found.text("make({})")
    assert f"  # {found.finding.what}\n" in text
    values = []
    for make in (load, broken_backends.sound):
        exec(text, names := {"make": make})
        values.append(str(names[source.partition(" = ")[0].rstrip(",")]))
    assert values[0] != values[1]


def test_what_writes_over_what_it_reads_is_found() -> None:
    # NumPy may refuse what is printed here: a copy to memory from which another one is read.
    found, source = found_of(broken_backends.writing_over_what_it_reads, "gives wrong numbers")
    assert len(found.program.statements) <= 15
    assert "out=" in source


@pytest.mark.parametrize(("error", "is_found"), [(1e-3, True), (1e-6, False)])
def test_numbers_are_compared_with_a_tolerance(error: float, is_found: bool) -> None:
    off = broken_backends._with(broken_backends.sound(1), to_numpy=lambda x: x * np.float32(1 + error))
    read = "r = backend.to_numpy(backend.asarray(np.ones(3, np.float32), devices[0]))"
    assert (run(Program(1, (Statement(read, ("r",), waits=True),)), off) is not None) == is_found


def test_a_failure_that_is_lost_is_found() -> None:
    found, _ = found_of(broken_backends.losing_failures, "raises no ComputationError")
    assert len(found.program.statements) <= 4


@pytest.mark.long
@pytest.mark.usefixtures("as_drawn")
def test_a_hang_is_found_with_each_thread_s_stack() -> None:
    found = next(search(broken_backends.hanging, LIMITS))
    assert found.finding.what == "hangs"
    assert found.finding.place is not None
    assert "allreduce" in found.program.statements[found.finding.place].source
    assert "broken_backends.py" in found.text("load({})")


@pytest.mark.usefixtures("as_drawn")
def test_a_crash_is_found() -> None:
    found, _ = found_of(broken_backends.crashing, "")
    assert found.finding.what == "crashes the process (SIGSEGV)"
    assert "allreduce" in found.text("load({})")


@pytest.mark.usefixtures("as_drawn")
def test_each_kind_is_reported_once() -> None:
    limits = Limits(seed=1, programs=60, devices=2)
    kinds = [found.finding.kind for found in search(broken_backends.counting_twice, limits)]
    assert kinds == ["gives wrong numbers"]


class TestSound(Conformance):
    """What an author of a backend writes."""

    limits = Limits(programs=10)

    @staticmethod
    def load(devices: int) -> Backend:
        return broken_backends.sound(devices)


@pytest.mark.usefixtures("as_drawn")
def test_the_class_for_authors_fails_with_the_program() -> None:
    class Broken(Conformance):
        limits = LIMITS
        load = staticmethod(broken_backends.counting_twice)

    with pytest.raises(AssertionError, match=r"Broken\.load\(3\)"):
        Broken().test_random_programs_give_what_numpy_gives()


def test_a_backend_that_ends_its_process_while_it_loads_is_told_in_one_line() -> None:
    with pytest.raises(BackendError, match=r"ended before it had loaded the backend \(exit status 3\)"):
        next(search(broken_backends.ending_the_process, LIMITS))
