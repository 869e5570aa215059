"""Runs a program in this process, and judges it: for backends that neither hang nor crash."""

from backends import Backend
from backends.conformance import Finding, Program
from backends.conformance.judging import judge
from backends.conformance.running import Event, run


def fault_in(program: Program, backend: Backend) -> Finding | None:
    """Return the first fault of a backend in a program; None if there is none."""
    events: list[Event] = []
    run(program, backend, events.append)
    return judge(program, backend.engine, events)
