"""How the backends differ, verb by verb: their own code, side by side, as it is installed here."""

import ast
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from backends import Backend
from backends.registry import GROUP, registered

__all__ = ["Verb", "source_of_verb", "verbs"]

COMMON = ("_refuse", "_fail")
"""What almost every verb calls, and where nothing is to be learnt."""

Function = ast.FunctionDef


@dataclass(frozen=True)
class Verb:
    """A verb of the protocol: its contract, and each backend's code as HTML."""

    name: str
    contract: str
    code: Mapping[str, Markup]


def verbs(backends: Iterable[str]) -> tuple[Verb, ...]:
    """Return the protocol's verbs in its order, with the code of the backends that are installed here."""
    sources = {name: source for name in backends if (source := source_of(name))}
    names = [
        (name, inspect.getdoc(function) or "")
        for name, function in vars(Backend).items()
        if inspect.isfunction(function) and not name.startswith("_")
    ]
    return tuple(
        Verb(name, contract, {backend: coloured(source_of_verb(source, name)) for backend, source in sources.items()})
        for name, contract in names
    )


def module_of(backend: str) -> Path | None:
    """Find a backend's file, importing no more than its package; None where it is not installed here."""
    for entry in registered(GROUP):
        spec = find_spec(entry.module) if entry.name == backend else None
        if spec is not None and spec.origin is not None:
            return Path(spec.origin)
    return None


def source_of(backend: str) -> str:
    """Return the text of a backend's file; empty where it cannot be found or is no Python."""
    try:
        path = module_of(backend)
        source = "" if path is None else path.read_text(encoding="utf-8")
        ast.parse(source)
    except (ImportError, OSError, ValueError, SyntaxError):
        return ""
    return source


def source_of_verb(source: str, verb: str) -> str:
    """Return a verb's method, and below it the file's private functions that it calls."""
    tree = ast.parse(source)
    private = {node.name: node for node in ast.walk(tree) if isinstance(node, Function) and node.name.startswith("_")}
    methods = [node for node in ast.walk(tree) if isinstance(node, Function) and node.name == verb]
    if not methods:
        return ""
    wanted = [methods[0]]
    for node in wanted:
        wanted += [private[name] for name in called(node) if name in private and private[name] not in wanted]
    return "\n\n".join(lines_of(source, node) for node in wanted)


def called(node: Function) -> list[str]:
    """List the private names in a function, in the order in which they stand there."""
    found = [
        name
        for child in ast.walk(node)
        for name in (
            [child.id] if isinstance(child, ast.Name) else [child.attr] if isinstance(child, ast.Attribute) else []
        )
        if name.startswith("_") and name not in COMMON and not name.startswith("__")
    ]
    return list(dict.fromkeys(found))


def lines_of(source: str, node: Function) -> str:
    """Return a function's lines, not indented."""
    return dedent("\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno]))


def coloured(code: str) -> Markup:
    """Return code as HTML, coloured by the page's style."""
    return Markup(highlight(code, PythonLexer(), HtmlFormatter(cssclass="code")))
