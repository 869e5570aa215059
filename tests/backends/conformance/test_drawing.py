"""Programs are valid, and depend on their random numbers alone."""

from inspect import isfunction
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backends import Ops
from backends.conformance import Program, draw_program
from backends.conformance.programs import Reference, reference_namespace
from backends.protocol import VERBS

programs = st.randoms(use_true_random=False).map(draw_program)


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
def test_what_depends_on_a_statement_that_is_left_out_goes_too(program: Program, data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, len(program.statements) - 1)))
    shorter = program.without(places)
    namespace = reference_namespace(program.devices)
    for statement in shorter.statements:
        exec(statement.for_reference, namespace)
    assert len(shorter.statements) <= len(program.statements) - len(places)


def test_the_same_random_numbers_give_the_same_program() -> None:
    assert draw_program(Random("1/5")) == draw_program(Random("1/5"))
    assert draw_program(Random("1/5")) != draw_program(Random("1/6"))


def test_every_verb_and_every_op_is_drawn() -> None:
    text = "\n".join(statement.source for n in range(150) for statement in draw_program(Random(n)).statements)
    assert [verb for verb in VERBS if f"backend.{verb}(" not in text] == []
    ops = [name for name, op in vars(Ops).items() if isfunction(op) and not name.startswith("_")]
    assert [op for op in ops if f"ops.{op}" not in text] == []
    assert len(ops) > 15
