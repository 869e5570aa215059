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

def product(of):
    x = of.asarray(np.ones((2, 2), dtype=np.float32), of.devices[0])
    return of.to_numpy(of.launch(of.ops.matmul, x, x)).sum()

backend, numpy = backends.load({name!r}, 2, "cpu", {engine!r}, 1), backends.load("numpy", 2, "cpu", "sync", 1)
product(backend)
child = os.fork()
if child == 0:
    signal.alarm(60)
    lines = {{refusal(verb, *range(number)) for verb in VERBS for number in range(4)}}
    print(lines == {{refusal("waitall")}}, refusal("waitall"))
    print(product(numpy), flush=True)
    try:
        print(product(backends.load({name!r}, 2, "cpu", {engine!r}, 1)), flush=True)
    except backends.BackendError as error:
        print(error, flush=True)
    {leave}
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), product(backend))
"""


LOADED_ONCE = ("jax",)
"""Frameworks that a forked child cannot start anew."""


def test_in_a_forked_child_every_verb_but_numpy_s_refuses_and_it_may_load_its_own(
    require: Callable[[str], None], run_python: RunPython, framework_name: str, engine: str
) -> None:
    require(framework_name)
    # What JAX does at Python's exit aborts there; children of multiprocessing leave without it.
    leave = "os._exit(0)" if framework_name in LOADED_ONCE else "sys.exit()"
    code = IN_CHILD.format(name=framework_name, engine=engine, leave=leave)
    refused, by_numpy, in_child, after = run_python(code).stdout.splitlines()
    assert refused.startswith(f"True {framework_name} was loaded before this process was forked")
    assert "'spawn' method" in refused
    assert (by_numpy, after) == ("8.0", "0 8.0")
    if framework_name in LOADED_ONCE:
        assert in_child.startswith(f"{framework_name} cannot be loaded in a process that was forked")
    else:
        assert in_child == "8.0"
