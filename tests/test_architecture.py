"""The seams hold: frameworks stay in `backends/`, imports stay lazy, and `__all__` is the public
interface.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

import backends
import parallel_core
from backends import Ops
from tests.conftest import FRAMEWORKS, RunPython
from tests.tree import ROOT, tracked

# Their public names are the backends' functions.
OPS = {"backends.jax.ops", "backends.mxnet.ops", "backends.torch.ops", "backends.numpy.ops"}
IMPORTING_A_FRAMEWORK = OPS | {
    *(f"backends.jax.{name}" for name in ("arguments", "compiling")),
    "backends.mxnet.engine",
}
MODULES = sorted(
    module.name
    for package in (backends, parallel_core)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if module.name not in IMPORTING_A_FRAMEWORK and not module.name.endswith("__main__")
)


def test_only_backends_import_frameworks() -> None:
    importing = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(FRAMEWORKS)})\b", re.MULTILINE)
    assert importing.search("    import torch\n")
    for path in tracked("parallel_core", suffix=".py"):
        assert not importing.search(path.read_text()), path


def test_only_two_folders_ask_linux_itself() -> None:
    """What runs in a program of the user's own may import nothing of ours, so it asks itself."""
    asking = re.compile(r"/proc/|\bsched_[gs]et|\bprctl\b|\bTCP_INFO\b")
    folders = {ROOT / "backends/host", ROOT / "parallel_core/system"}
    in_programs = {
        ROOT / "parallel_core/traces/profile/recorder.py",
        ROOT / "backends/mxnet/program_hooks.py",
    }
    files = {
        path
        for path in tracked("backends", "parallel_core", suffix=".py")
        if path.parent not in folders and asking.search(path.read_text())
    }
    assert files == in_programs


def test_importing_the_packages_imports_no_framework(run_python: RunPython) -> None:
    modules = ", ".join(MODULES)
    done = run_python(f"import sys, {modules}; print(*{set(FRAMEWORKS)!r} & set(sys.modules))")
    assert done.stdout.strip() == ""


def defined_in(module: ModuleType) -> set[str]:
    """Return the names of the functions and classes that a module defines itself."""
    return {
        name
        for name, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    }


def test_all_lists_what_exists_once_and_what_else_such_a_module_has_is_private() -> None:
    for name in MODULES:
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", None)
        if exported is not None:
            assert len(exported) == len(set(exported)), name
            assert set(exported) <= vars(module).keys(), name
            others = defined_in(module) - set(exported)
            assert all(other.startswith("_") for other in others), (name, others)


def test_constants_have_no_leading_underscore() -> None:
    private_constant = re.compile("_[A-Z][A-Z0-9_]*")
    for module in MODULES:
        names = vars(importlib.import_module(module))
        assert [name for name in names if private_constant.fullmatch(name)] == [], module


def functions_of_protocol() -> dict[str, list[str]]:
    """Return the arguments of each function that every ops module must have."""
    functions = {}
    for name, function in vars(Ops).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            _self, *arguments = inspect.signature(function).parameters
            functions[name] = arguments
    return functions


def public_functions(path: Path) -> dict[str, list[str]]:
    """Return the arguments of each public function of a file, which is not imported."""
    functions = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            functions[node.name] = [argument.arg for argument in node.args.args]
    return functions


@pytest.mark.parametrize("module_name", sorted(OPS))
def test_every_ops_module_has_every_function_of_the_protocol_with_its_arguments(
    root: Path, module_name: str
) -> None:
    path = root / f"{module_name.replace('.', '/')}.py"
    assert public_functions(path) == functions_of_protocol()
