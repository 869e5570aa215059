"""Runs a program in this process, and judges it: for backends that neither hang nor crash."""

from backends import Backend
from backends.conformance import Finding, Program
from backends.conformance.judging import judge
from backends.conformance.running import Event, run


def fault_in(program: Program, backend: Backend) -> Finding | None:
    """Return the first thing in a program that is not as the protocol says."""
    events: list[Event] = []
    run(program, backend, events.append)
    return judge(program, backend.engine, events)
