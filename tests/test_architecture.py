"""The seams hold: frameworks stay in `backends/`, imports stay lazy, and `__all__` is the public
interface.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import backends
import parallel_core
from backends import Ops
from tests.conftest import FRAMEWORKS, RunPython
from tests.tree import tracked

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
    assert [
        path
        for path in tracked("parallel_core", suffix=".py")
        if importing.search(path.read_text())
    ] == []
    assert importing.search("    import torch\n")


def test_importing_the_packages_imports_no_framework(run_python: RunPython) -> None:
    modules = ", ".join(MODULES)
    done = run_python(
        f"import sys, {modules}; print(*sorted({set(FRAMEWORKS)!r} & set(sys.modules)))"
    )
    assert done.stdout.strip() == ""


def test_all_lists_what_exists_once_and_what_else_such_a_module_has_is_private() -> None:
    """Beside `__all__`, functions and classes have a leading underscore; constants have none
    anywhere.
    """
    wrong: dict[str, set[str]] = {}
    for name in MODULES:
        found = vars(importlib.import_module(name))
        exported = found.get("__all__", ())
        strange = {one for one in exported if one not in found or list(exported).count(one) > 1}
        strange |= {one for one in found if re.fullmatch("_[A-Z][A-Z0-9_]*", one)}
        if "__all__" in found:
            codes = {
                one
                for one, value in found.items()
                if inspect.isclass(value) or inspect.isfunction(value)
            }
            own = {one for one in codes if found[one].__module__ == name}
            strange |= {one for one in own - {*exported} if not one.startswith("_")}
        if strange:
            wrong[name] = strange
    assert wrong == {}


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
