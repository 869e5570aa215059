"""Programs that are drawn are valid; the suite finds what is wrong with a backend, and what it
prints shows it.
"""

from collections.abc import Callable
from functools import partial
from inspect import isfunction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import Backend, Ops
from backends.conformance import (
    Found,
    Limits,
    Program,
    draw_program,
    functions,
    search,
    searching,
)
from backends.conformance.judging import judge
from backends.conformance.programs import Reference, Statement, reference_namespace
from backends.conformance.running import Event, run
from backends.protocol import VERBS
from tests.backends.conformance import defects
from tests.backends.conformance.defects import Verb, load
from tests.backends.conformance.in_this_process import fault_in

programs = st.randoms(use_true_random=False).map(draw_program)
LIMITS = Limits(seed=2, programs=400, devices=3, deadline=3)


@given(programs)
def test_every_name_is_defined_once_and_before_it_is_used(program: Program) -> None:
    defined: set[str] = set()
    for statement in program.statements:
        assert set(statement.uses) <= defined
        assert not set(statement.defines) & defined
        defined |= set(statement.defines)


@given(programs)
def test_a_program_is_python_that_runs_by_itself(program: Program) -> None:
    if any(statement.fails for statement in program.statements):
        return
    names: dict[str, Any] = {"make": Reference}
    exec(program.text(f"make({program.devices})"), names)
    assert names["backend"].name == "reference"


@given(programs, st.data())
def test_what_depends_on_a_statement_that_is_left_out_goes_too(
    program: Program, data: st.DataObject
) -> None:
    positions = data.draw(st.sets(st.integers(0, len(program.statements) - 1)))
    shorter = program.without(positions)
    namespace = reference_namespace(program.devices)
    for statement in shorter.statements:
        exec(statement.for_reference, namespace)
    assert len(shorter.statements) <= len(program.statements) - len(positions)


def test_the_same_random_numbers_give_the_same_program() -> None:
    assert draw_program(Random("1/5")) == draw_program(Random("1/5"))
    assert draw_program(Random("1/5")) != draw_program(Random("1/6"))


def test_every_verb_and_every_op_is_drawn() -> None:
    sources: list[str] = []
    for seed in range(150):
        sources += [statement.source for statement in draw_program(Random(seed)).statements]
    text = "\n".join(sources)
    missing_verbs = [verb for verb in VERBS if f"backend.{verb}(" not in text]
    ops = [name for name, op in vars(Ops).items() if isfunction(op) and not name.startswith("_")]
    missing_ops = [op for op in ops if f"ops.{op}" not in text]
    assert missing_verbs == []
    assert missing_ops == []
    assert len(ops) > 15


@pytest.mark.parametrize(
    ("labels", "are_classes"), [([0, 1], True), ([-1, 1], False), ([0, 2], False)]
)
def test_labels_are_the_numbers_of_classes(labels: list[int], are_classes: bool) -> None:
    assert functions._are_labels(np.array(labels), np.zeros((2, 2))) == are_classes


@pytest.fixture
def as_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave programs as long as they are drawn: a hang or a crash costs a process each time."""
    monkeypatch.setattr(searching, "MAX_SECONDS", 0)


def found_of(load: Callable[[int], Backend], kind: str) -> tuple[Found, str]:
    """Return the first finding of a kind, with the source of the statement that shows it."""
    found = next(found for found in search(load, LIMITS) if kind in found.finding.what)
    position = found.finding.position
    if position is None:
        return found, ""
    return found, found.program.statements[position].source


def test_numpy_equals_itself_until_a_limit_is_reached() -> None:
    programs_done: list[int] = []

    def on_program(done: int, _: float) -> None:
        programs_done.append(done)

    assert list(search(load, Limits(programs=20), on_program)) == []
    assert programs_done == list(range(21))
    assert list(search(load, Limits(seconds=0.1))) == []


@pytest.mark.parametrize(
    ("verb", "defect"),
    [
        ("allreduce", defects.count_twice),
        ("copy_to", defects.copy_nothing),
        ("split_and_load", defects.divide_from_the_end),
    ],
)
def test_wrong_numbers_are_found_and_printed_as_a_short_program(verb: str, defect: Verb) -> None:
    """The printed program shows the defect to a person who pastes it into a file and runs it."""
    load_broken = partial(load, **{verb: defect})
    found, source = found_of(load_broken, "gives wrong numbers")
    assert len(found.program.statements) <= 15
    text = found.text("make({})")
    assert f"  # {found.finding.what}\n" in text
    names, _, _ = source.partition(" = ")
    name_of_result = names.rstrip(",")

    def result_of(make: Callable[[int], Backend]) -> str:
        namespace: dict[str, Any] = {"make": make}
        exec(text, namespace)
        return str(namespace[name_of_result])

    assert result_of(load_broken) != result_of(load)


def test_what_writes_over_what_it_reads_is_found() -> None:
    # The printed program is not run: without the defect NumPy may refuse a copy to memory from
    # which another one is read.
    load_broken = partial(load, copy_to=defects.write_over_what_is_read)
    found, source = found_of(load_broken, "gives wrong numbers")
    assert len(found.program.statements) <= 15
    assert "out=" in source


@pytest.mark.parametrize(("error", "is_found"), [(1e-3, True), (1e-6, False)])
def test_numbers_are_compared_with_a_tolerance(error: float, is_found: bool) -> None:
    def read_with_error(read: Verb, x: Any) -> Any:
        return read(x) * np.float32(1 + error)

    source = "r = backend.to_numpy(backend.asarray(np.ones(3, np.float32), devices[0]))"
    program = Program(1, (Statement(source, ("r",), waits=True),))
    fault = fault_in(program, load(1, to_numpy=read_with_error))
    assert (fault is not None) == is_found


@given(programs, st.data())
def test_a_sound_backend_has_no_fault_however_far_a_program_comes(
    program: Program, data: st.DataObject
) -> None:
    backend = load(program.devices)
    events: list[Event] = []
    run(program, backend, events.append)
    assert judge(program, backend.engine, events) is None
    # Of a program that hangs there are only the events before the hang.
    first_events = events[: data.draw(st.integers(0, len(events) - 1))]
    assert judge(program, backend.engine, first_events, is_over=False) is None


def test_every_verb_has_to_refuse_after_a_failure() -> None:
    source = "backend.launch(lambda x: fail(ValueError()), backend.asarray(np.ones(1), devices[0]))"
    failing = Statement(source, fails="computation", stand_in="backend.waitall()")
    program = Program(1, (failing,))
    events: list[Event] = []
    run(program, load(1), events.append)
    assert [event.verb for event in events] == ["", *VERBS]
    for number, verb in enumerate(VERBS, 1):
        returned = events[number]._replace(outcome="returns")
        fault = judge(program, "sync", [*events[:number], returned])
        assert fault is not None
        assert fault.what == f"{verb} does not refuse after a failure"


def test_a_failure_that_is_lost_is_found() -> None:
    found, _ = found_of(partial(load, launch=defects.lose_failures), "raises no ComputationError")
    assert len(found.program.statements) <= 4


@pytest.mark.usefixtures("as_drawn")
@pytest.mark.parametrize(
    ("sum_up", "what"),
    [
        pytest.param(defects.hang, "hangs", marks=pytest.mark.long),
        (defects.crash, "crashes the process (SIGSEGV)"),
    ],
)
def test_a_hang_and_a_crash_are_found_with_each_thread_s_stack(sum_up: Verb, what: str) -> None:
    found, source = found_of(partial(load, allreduce=sum_up), "")
    assert found.finding.what == what
    assert "allreduce" in source
    assert "defects.py" in found.text("load({})")


@pytest.mark.usefixtures("as_drawn")
def test_each_kind_is_reported_once() -> None:
    limits = Limits(seed=1, programs=30, devices=2)
    load_broken = partial(load, allreduce=defects.count_twice)
    kinds = [found.finding.kind for found in search(load_broken, limits)]
    assert kinds == ["gives wrong numbers"]
