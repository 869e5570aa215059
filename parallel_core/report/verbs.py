"""How the backends differ, verb by verb: the code of the classes that ran, side by side, as it is installed here."""

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from backends import Backend, BackendError
from backends.devices import parse_device
from backends.protocol import VERBS
from backends.registry import class_of


@dataclass(frozen=True)
class Verb:
    """A verb of the protocol: its contract, and each class's code as HTML."""

    name: str
    contract: str
    code: Mapping[str, Markup]


def verbs(ran: Iterable[Mapping[str, Any]]) -> tuple[Verb, ...]:
    """Return the protocol's verbs in its order, with the code of the classes that ran and are installed here.

    `ran` is what each result says of its backend: its name, engine and devices.
    """
    classes = dict.fromkeys(filter(None, map(_class_that_ran, ran)))
    readable = {path: name for path, name in classes if _tree_of(path.partition(":")[0])}
    return tuple(
        Verb(
            verb,
            inspect.getdoc(getattr(Backend, verb)) or "",
            {
                name: Markup(highlight(source_of_verb(path, verb), PythonLexer(), HtmlFormatter(cssclass="code")))
                for path, name in readable.items()
            },
        )
        for verb in VERBS
    )


def _class_that_ran(backend: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the path of a backend's class, and its name for readers; None if it is not installed here."""
    try:
        kinds = {parse_device(name).kind for name in backend["devices"]}
        path = class_of(backend["name"], backend["engine"], kinds)
    except BackendError:
        return None
    return path, f"{backend['name']}: {path.rpartition(':')[2]}"


def source_of_verb(path: str, verb: str) -> str:
    """Return a verb's method in the class at `path`, `module:name`, and below it the functions that it calls.

    These are the private ones of its file, and those that it imports from the folder of its framework.
    """
    module, _, name = path.partition(":")
    classes = _classes_in(module)
    # An entry point may name a function that makes the object: then the file's first class is meant.
    functions = list(_methods(module, name if name in classes else next(iter(classes), ""), verb))[:1]
    for module, function in functions:
        functions += dict.fromkeys(called for called in _called_by(module, function) if called not in functions)
    return "\n\n".join(
        dedent("\n".join(_source_of(module).splitlines()[function.lineno - 1 : function.end_lineno]))
        for module, function in functions
    )


def _methods(module: str, name: str, verb: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Iterate over a method in a class and in those that it inherits from, with their modules."""
    tree, chosen = _tree_of(module), _classes_in(module).get(name)
    if tree and chosen:
        yield from ((module, node) for node in chosen.body if isinstance(node, ast.FunctionDef) and node.name == verb)
        for base in chosen.bases:
            if isinstance(base, ast.Name) and base.id != chosen.name:
                yield from _methods(_imports(tree).get(base.id, module), base.id, verb)


def _called_by(module: str, function: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Iterate over the functions that a function calls in its own file or imports, in the order of its text."""
    tree = _tree_of(module)
    if tree is None:
        return
    private = {name: node for name, node in _functions_in(tree).items() if name.startswith("_")}
    parts = module.split(".")
    folder = ".".join(parts[: min(2, len(parts) - 1)]) + "."
    for node in ast.walk(function):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        origin = _imports(tree).get(name, "")
        if name in private:
            yield module, private[name]
        elif origin.startswith(folder) and (other := _tree_of(origin)) and name in _functions_in(other):
            yield origin, _functions_in(other)[name]


@cache
def _source_of(module: str) -> str:
    """Return the text of a module, importing no more than its package; empty if it cannot be read."""
    try:
        spec = find_spec(module)
        return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    except (ImportError, OSError, ValueError):
        return ""


@cache
def _tree_of(module: str) -> ast.Module | None:
    """Parse a module; None if it cannot be read or is no Python."""
    try:
        return ast.parse(_source_of(module)) if _source_of(module) else None
    except SyntaxError:
        return None


def _classes_in(module: str) -> dict[str, ast.ClassDef]:
    tree = _tree_of(module)
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)} if tree else {}


def _functions_in(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return the modules from which a module imports names, by name."""
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in nodes for alias in node.names}
