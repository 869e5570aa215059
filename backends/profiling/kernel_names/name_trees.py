"""What a kernel's name says, as a tree: the function, its template arguments, and what is around it.

Which parts of a tree are shown is for others to choose; `write_name` writes them.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pycxxfilt

from backends.profiling.kernel_names.cpp_names import Brackets, Name, Text, parse_text

__all__ = ["ELLIPSIS", "NameTree", "Path", "parts_of", "tree_of", "write_name"]

ELLIPSIS = "…"
LONGEST_WORD = 96
"""An identifier that is longer was generated, such as those of Tensile, and is cut down at its `_`."""
WRAPPERS = {
    "AUnaryFunctor": 3,
    "BUnaryFunctor": 3,
    "BinaryFunctor": 3,
    "__nv_dl_tag": 1,
    "__nv_dl_wrapper_t": 0,
    "__nv_hdl_wrapper_t": 3,
    "func_wrapper_t": 1,
    "gpu_kernel_impl": 0,
    "gpu_kernel_impl_nocast": 0,
}
"""What PyTorch and NVIDIA's compiler put around what says what is computed, and its place among the arguments."""
GENERIC = {
    "Params",
    "apply",
    "combine",
    "dispatch",
    "exists",
    "impl",
    "kernel",
    "launch",
    "run",
    "type",
    "value",
    "value_type",
}
"""Names that say nothing without the class or namespace around them."""
QUALIFIERS = re.compile(r"(?:[ &*]|const|volatile|noexcept|\.\w+)*")
SCOPES = re.compile(r"(?:\(anonymous \w+\)::|<unnamed>::|\b[A-Za-z_]\w*::)+")

Path: TypeAlias = tuple[tuple[str, int], ...]
"""The way from a tree's root to one of its nodes: which of a node's branches, and the place there."""


@dataclass(frozen=True)
class NameTree:
    """A part of a name that is shown or left out; `label` and `after` enclose its template arguments."""

    label: str
    after: str = ""
    arguments: "tuple[NameTree, ...]" = ()
    scope: "tuple[NameTree, ...]" = ()
    tail: "tuple[NameTree, ...]" = ()
    around: "tuple[NameTree, ...]" = ()
    parameters: "tuple[NameTree, ...]" = ()
    words: "tuple[NameTree, ...]" = ()

    def branches(self) -> "Iterator[tuple[str, tuple[NameTree, ...]]]":
        """Give the node's branches, those that tell most first."""
        yield "words", self.words
        yield "arguments", self.arguments
        yield "tail", self.tail
        yield "around", self.around
        yield "scope", self.scope
        yield "parameters", self.parameters


def tree_of(full: str) -> NameTree:
    """Return what a kernel's full name says; all of it in one label if it is no C++ function, or was shortened."""
    if ELLIPSIS in full:
        return NameTree(full)
    text = parse_text(_demangled(full))
    function = None if text is None else _function(text)
    if function is None:
        return NameTree(full)
    name, parameters = function
    node = _name_node(name, "")
    if len(node.label) > LONGEST_WORD:
        node = replace(node, label="", words=tuple(map(NameTree, node.label.split("_"))))
    return replace(node, parameters=node.parameters or tuple(map(_text_node, parameters or ())))


def parts_of(node: NameTree, path: Path = ()) -> Iterator[tuple[Path, tuple[str, str]]]:
    """Give all nodes of a tree, and what each says by itself, an outer one before those within."""
    yield path, (node.label, node.after)
    for branch, nodes in node.branches():
        for place, one in enumerate(nodes):
            yield from parts_of(one, (*path, (branch, place)))


def write_name(node: NameTree, shown: Collection[Path], path: Path = ()) -> str:
    """Write the nodes that are to be shown; a mark stands for arguments that are not."""

    def parts(branch: str, nodes: Sequence[NameTree]) -> list[str]:
        # Neighbours that are left out share a mark.
        found: list[str] = []
        for place, one in enumerate(nodes):
            here = (*path, (branch, place))
            if here in shown:
                found.append(write_name(one, shown, here))
            elif found[-1:] != [ELLIPSIS]:
                found.append(ELLIPSIS)
        return [] if found == [ELLIPSIS] else found

    scope = "".join(f"{one}::" for one in parts("scope", node.scope) if one != ELLIPSIS)
    words = "_".join(parts("words", node.words))
    arguments = ", ".join(parts("arguments", node.arguments))
    parameters = ", ".join(parts("parameters", node.parameters))
    tail = "".join(f"::{one}" for one in parts("tail", node.tail) if one != ELLIPSIS)
    in_brackets = (f"<{arguments}>" if arguments else "") + (f"({parameters})" if parameters else "")
    around = [one for place, one in enumerate(node.around) if (*path, ("around", place)) in shown]
    opening, closing = "".join(one.label for one in around), "".join(one.after for one in reversed(around))
    return f"{opening}{scope}{node.label}{words}{in_brackets}{tail}{closing}{node.after}"


def _demangled(full: str) -> str:
    if not full.startswith("_Z"):
        return full
    try:
        return pycxxfilt.itanium_demangle(full.removesuffix(".kd")) or full
    except ValueError:
        return full


def _function(text: Text) -> tuple[Name, tuple[Text, ...] | None] | None:
    """Return the name of a function and its parameters, None if it has none; None for what is no function."""
    for place, name in reversed(list(enumerate(text))):
        if not isinstance(name, Name):
            continue
        before, rest = text[:place], text[place + 1 :]
        parameters = None
        if rest and isinstance(rest[0], Brackets) and rest[0].opening == "(":
            parameters, rest = rest[0].texts, rest[1:]
        # Such as `[clone .kd]`.
        while rest and isinstance(rest[-1], Brackets) and rest[-1].opening == "[":
            rest = rest[:-1]
        is_end = all(isinstance(one, str | Name) for one in rest) and QUALIFIERS.fullmatch(_flat(rest))
        returns = _flat(before)
        is_begin = (
            returns[-1:] in ("", " ") if parameters is not None else returns in ("", "void ", "typeinfo name for ")
        )
        if is_begin and is_end:
            return name, parameters
    return None


def _text_node(text: Text) -> NameTree:
    # The address of a function says no more than its name.
    first, *rest = text[1:] if text[:1] == ("&",) else text or ("",)
    if isinstance(first, Name) and not any(isinstance(one, Brackets) for one in rest):
        after = _flat(tuple(rest))
        if QUALIFIERS.fullmatch(after):
            return _name_node(first, after)
    return NameTree(_flat(text))


def _name_node(name: Name, after: str) -> NameTree:
    """Return what a name is called, with what is around it in the branches that are shown only if need be."""
    components = name.components
    last = len(components) - 1
    # What a function or a functor holds is called by the function's name.
    while last > 0 and components[last].identifier.startswith(("{", "'", "$_", "<lambda", "operator()")):
        last -= 1
    telling, before, tail = components[last], components[:last], components[last + 1 :]
    label = telling.identifier.removesuffix(".kd")
    arguments = telling.arguments or ()
    inner = arguments[WRAPPERS[label]] if WRAPPERS.get(label, len(arguments)) < len(arguments) else None
    tail_nodes = tuple(NameTree(_unscoped(one.written)) for one in tail if one.identifier != "operator()")
    scope = tuple(NameTree(_unscoped(one.written)) for one in before)
    parameters = tuple(map(_text_node, telling.parameters or ()))
    if inner is not None:
        node, place = _text_node(inner), WRAPPERS[label]
        opening = "".join(f"{_flat(one)}, " for one in arguments[:place])
        closing = "".join(f", {_flat(one)}" for one in arguments[place + 1 :])
        return replace(
            node,
            after=node.after + after,
            scope=(*scope, *node.scope),
            tail=node.tail + tail_nodes,
            around=(NameTree(f"{label}<{opening}", f"{closing}>"), *node.around),
            parameters=node.parameters or parameters,
        )
    if (label in GENERIC or label.startswith("operator")) and before and not before[-1].identifier.startswith("("):
        parent = before[-1]
        if arguments or not parent.arguments:
            label, scope = f"{parent.identifier}::{label}", scope[:-1]
        else:
            arguments, after, label, scope = parent.arguments, f"::{label}{after}", parent.identifier, scope[:-1]
    return NameTree(label, after, tuple(map(_text_node, arguments)), scope, tail_nodes, parameters)


def _flat(text: Text) -> str:
    """Write a text as it was, without namespaces."""
    return _unscoped("".join(piece if isinstance(piece, str) else piece.written for piece in text))


def _unscoped(written: str) -> str:
    return SCOPES.sub("", written).replace("> >", ">>")
