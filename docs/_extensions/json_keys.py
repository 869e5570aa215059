"""Directives for JSON: `json-keys` says what a dataclass becomes, key by key, and `module-text`
quotes a docstring.
"""

import types
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from parallel_core.traces.figures import figure, figures_of_level, hints_of

__all__ = ["setup"]

SIMPLE = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
    Any: "anything",
}


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directives."""
    app.add_directive("json-keys", _JsonKeys)
    app.add_directive("module-text", _ModuleText)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _JsonKeys(SphinxDirective):
    """The keys of an object: `json-keys` with the path of its dataclass.

    `leave-out` names fields that are written otherwise, or not at all.
    """

    required_arguments = 1
    option_spec = {"leave-out": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].rpartition(".")
        described = getattr(import_module(module), name)
        self.env.note_dependency(import_module(module).__file__)
        left_out = set(self.options.get("leave-out", "").split())
        return self.parse_text_to_nodes("\n".join(_keys(described, left_out)))


class _ModuleText(SphinxDirective):
    """A module's docstring without its first line."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        _, _, text = cleandoc(import_module(self.arguments[0]).__doc__ or "").partition("\n\n")
        return self.parse_text_to_nodes(text)


def _keys(described: type, left_out: set[str], depth: int = 0) -> Iterator[str]:
    """Yield the lines of a Markdown list, with a list of its own under the first key that holds
    objects of a class.
    """
    listed: set[type] = set()
    margin = "  " * depth
    comments = _comments(described)
    yield from (f"{margin}{line}" for line in (*cleandoc(described.__doc__ or "").splitlines(), ""))
    declared = figures_of_level(described)
    for name, hint in hints_of(described).items():
        if name in left_out:
            continue
        own = comments.get(name, [""])
        code = f" Null: `{declared[name].lacking}`." if declared[name].lacking else ""
        yield f"{margin}- `{name}` ({_in_words(hint)}){': ' if own[0] or code else ''}{own[0]}"
        yield from (f"{margin}  {line}" for line in (*own[1:], code.strip()) if line)
        yield ""
        for one in _objects_in(hint):
            if one not in listed:
                listed.add(one)
                yield from _keys(one, left_out, depth + 1)


def _comments(described: type) -> Mapping[str, Sequence[str]]:
    analyzer = ModuleAnalyzer.for_module(described.__module__)
    found = analyzer.find_attr_docs()
    comments: dict[str, Sequence[str]] = {
        name: lines for (owner, name), lines in found.items() if owner == described.__qualname__
    }
    for name, method in vars(described).items():
        if isinstance(method, figure):
            comments[name] = cleandoc(method.func.__doc__ or "").splitlines() or [""]
    return comments


def _in_words(hint: Any) -> str:
    origin, of = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _in_words(of[0])
    if hint in SIMPLE:
        return SIMPLE[hint]
    if isinstance(hint, type) and figures_of_level(hint):
        return "object"
    if origin is Literal:
        return " or ".join(f'`"{value}"`' for value in of)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(one) for one in of)
    if origin is tuple and of[-1] is Ellipsis:
        return f"list of {_plural(_in_words(of[0]))}"
    if origin is tuple:
        return f"list: {', '.join(_in_words(one) for one in of)}"
    if origin is not None and issubclass(origin, Mapping):
        return "object" if of[1] is Any else f"object of {_plural(_in_words(of[1]))}"
    if origin is not None and issubclass(origin, Sequence):
        return f"list of {_plural(_in_words(of[0]))}"
    raise ValueError(f"no JSON type is known for {hint}")


def _plural(words: str) -> str:
    return words if words == "anything" or " " in words else f"{words}s"


def _objects_in(hint: Any) -> list[type]:
    """Return the dataclasses that a field holds, however deep."""
    if isinstance(hint, type) and get_origin(hint) is None:
        return [hint] if figures_of_level(hint) else []
    return [found for one in get_args(hint) for found in _objects_in(one)]
