"""The seams hold: frameworks stay in `backends/`, imports stay lazy, and `__all__` is the public interface."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import backends
import parallel_core
from backends import Ops
from backends.protocol import VERBS
from parallel_core.experiments.runner.declaration import CHAPTERS
from tests.conftest import FRAMEWORKS, RunPython
from tests.tree import tracked

# Their public names are the backends' functions.
OPS = {"backends.jax.ops", "backends.mxnet.ops", "backends.torch.ops", "backends.numpy.ops"}
IMPORTING_A_FRAMEWORK = OPS | {
    *(f"backends.jax.{name}" for name in ("compiling", "identity", "pending", "steps", "tracing")),
    *("backends.mxnet.memory", "backends.mxnet.sharded_sum", "backends.mxnet.units"),
}
MODULES = sorted(
    module.name
    for package in (backends, parallel_core)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if module.name not in IMPORTING_A_FRAMEWORK and not module.name.endswith("__main__")
)


def imported_names(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_nothing_outside_backends_imports_a_framework() -> None:
    for source in tracked("parallel_core", suffix=".py"):
        assert not {*FRAMEWORKS} & set(imported_names(source)), source


def test_backends_know_nothing_of_experiments() -> None:
    for source in tracked("backends", suffix=".py"):
        assert "parallel_core" not in set(imported_names(source)), source


def test_importing_the_packages_imports_no_framework(run_python: RunPython) -> None:
    modules = ", ".join(MODULES)
    done = run_python(f"import sys, {modules}; print(*sorted({set(FRAMEWORKS)!r} & set(sys.modules)))")
    assert done.stdout.strip() == ""


def public_names(module: ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    }


@pytest.mark.parametrize("name", MODULES)
def test_all_lists_only_what_exists_and_nothing_twice(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert all(hasattr(module, exported_name) for exported_name in exported)
    assert len(set(exported)) == len(exported)


CHAPTERS_OF_EXPERIMENTS = tuple(f"parallel_core.experiments.{chapter}" for chapter in CHAPTERS)
"""Their modules are programs that are read, and not an interface."""


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith(CHAPTERS_OF_EXPERIMENTS)])
def test_what_a_module_does_not_list_in_all_is_private(name: str) -> None:
    """Functions and classes outside `__all__`, if a module has one, have a leading underscore; constants never do."""
    module = importlib.import_module(name)
    assert public_names(module) <= set(getattr(module, "__all__", public_names(module)))
    assert [constant for constant in vars(module) if re.fullmatch("_[A-Z][A-Z0-9_]*", constant)] == []


def test_every_ops_module_has_every_function_of_the_protocol_with_its_arguments(root: Path) -> None:
    wanted = {
        name: list(inspect.signature(function).parameters)[1:]
        for name, function in vars(Ops).items()
        if inspect.isfunction(function) and not name.startswith("_")
    }
    for name in OPS:
        source = ast.parse((root / f"{name.replace('.', '/')}.py").read_text())
        defined = {
            node.name: [argument.arg for argument in node.args.args]
            for node in source.body
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        }
        assert defined == wanted, name


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("numpy.backend", "NumPyBackend"),
        ("mxnet.backend", "MXNetBackend"),
        ("torch.eager", "EagerTorch"),
        ("torch.worker_threads", "WorkerThreadsTorch"),
        ("torch.cuda.threads", "CudaThreadsTorch"),
    ],
)
def test_every_backend_has_the_verbs_in_the_protocol_s_order(module: str, name: str) -> None:
    backend = getattr(importlib.import_module(f"backends.{module}"), name)
    own = [verb for verb in vars(backend) if inspect.isfunction(vars(backend)[verb]) and not verb.startswith("_")]
    assert own == [verb for verb in VERBS if verb in own]
    # What is not its own is the same for all.
    assert {"launch", "wait", "copy_to", "allreduce"} < {*own}
    assert all(inspect.isfunction(getattr(backend, verb)) for verb in VERBS)
    assert vars(backend)["__final__"]
    assert not any(vars(parent).get("__final__") for parent in backend.__mro__[1:])
