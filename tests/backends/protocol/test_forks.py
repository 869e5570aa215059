"""A forked child has a copy of a backend, and none of its threads: the backend refuses, and does not hang."""

from collections.abc import Callable

from tests.conftest import RunPython

IN_CHILD = """
import os, signal, sys
import numpy as np
import backends
from backends.protocol import VERBS

def refusal(verb, *arguments):
    try:
        return getattr(backend, verb)(*arguments) and ""
    except backends.BackendError as error:
        return str(error)

def product():
    x = backend.asarray(np.ones((2, 2), dtype=np.float32), backend.devices[0])
    return backend.to_numpy(backend.launch(backend.ops.matmul, x, x))

backend = backends.load({name!r}, 2, "cpu", {engine!r}, 1)
product()
child = os.fork()
if child == 0:
    signal.alarm(60)
    lines = {{refusal(verb, *range(number)) for verb in VERBS for number in range(4)}}
    print(lines == {{refusal("waitall")}}, refusal("waitall"), flush=True)
    try:
        backend = backends.load({name!r}, 2, "cpu", {engine!r}, 1)
        print(product().sum(), flush=True)
    except backends.BackendError as error:
        print(error, flush=True)
    {leave}
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), product().sum())
"""


LOADED_ONCE = ("jax",)
"""Frameworks that a forked child cannot start anew."""


def test_every_verb_refuses_in_a_forked_child_which_may_load_its_own(
    require: Callable[[str], None], run_python: RunPython, framework_name: str, engine: str
) -> None:
    require(framework_name)
    # What JAX does at Python's exit aborts there; children of multiprocessing leave without it.
    leave = "os._exit(0)" if framework_name in LOADED_ONCE else "sys.exit()"
    code = IN_CHILD.format(name=framework_name, engine=engine, leave=leave)
    refused, in_child, after = run_python(code).stdout.splitlines()
    assert refused.startswith(f"True {framework_name} was loaded before this process was forked")
    assert "'spawn' method" in refused
    assert after == "0 8.0"
    if framework_name in LOADED_ONCE:
        assert in_child.startswith(f"{framework_name} cannot be loaded in a process that was forked")
    else:
        assert in_child == "8.0"


NUMPY_IN_CHILD = """
import os
import numpy as np
import backends

backend = backends.load("numpy", 2, "cpu", "sync", 1)
x = backend.asarray(np.ones((2, 2)), backend.devices[0])
child = os.fork()
if child == 0:
    os._exit(int(backend.to_numpy(backend.launch(backend.ops.matmul, x, x)).sum()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_numpy_works_on_in_a_forked_child(run_python: RunPython) -> None:
    assert run_python(NUMPY_IN_CHILD).stdout == "8\n"
