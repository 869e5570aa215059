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
    readable = {path: name for path, name in classes if _read(path.partition(":")[0]).lines}
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
    classes = _read(module).classes
    # An entry point may name a function that makes the object: then the file's first class is meant.
    functions = list(_methods(module, name if name in classes else next(iter(classes), ""), verb))[:1]
    for module, function in functions:
        functions += dict.fromkeys(called for called in _called_by(module, function) if called not in functions)
    return "\n\n".join(
        dedent("\n".join(_read(module).lines[function.lineno - 1 : function.end_lineno]))
        for module, function in functions
    )


def _methods(module: str, name: str, verb: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Iterate over a method in a class and in those that it inherits from, with their modules."""
    if chosen := _read(module).classes.get(name):
        yield from ((module, node) for node in chosen.body if isinstance(node, ast.FunctionDef) and node.name == verb)
        for base in chosen.bases:
            if isinstance(base, ast.Name) and base.id != chosen.name:
                yield from _methods(_read(module).imports.get(base.id, module), base.id, verb)


def _called_by(module: str, function: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Iterate over the functions that a function calls in its own file or imports, in the order of its text."""
    own, parts = _read(module), module.split(".")
    folder = ".".join(parts[: min(2, len(parts) - 1)]) + "."
    for node in ast.walk(function):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        origin = own.imports.get(name, "")
        if name.startswith("_") and name in own.functions:
            yield module, own.functions[name]
        elif origin.startswith(folder) and name in _read(origin).functions:
            yield origin, _read(origin).functions[name]


class _Module:
    """What stands in a module, read without importing more than its package; nothing if it cannot be read."""

    def __init__(self, name: str) -> None:
        try:
            spec = find_spec(name)
            text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
            tree = ast.parse(text)
        except (ImportError, OSError, ValueError, SyntaxError):
            text, tree = "", ast.Module([], [])
        self.lines = text.splitlines()
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        self.imports = {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}


_read = cache(_Module)
