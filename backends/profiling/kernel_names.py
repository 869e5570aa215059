"""Short names for kernels, which stay distinct: what a kernel is called, with those template arguments that tell most.

A kernel's full name has up to 10,000 characters. Its short one depends on the full one alone, so that traces can be
compared; only if two kernels of a trace would share it, both are given what tells them apart.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pycxxfilt

from backends.profiling.cpp_names import Brackets, Component, Name, Text, parse_text

__all__ = ["short_names"]

LENGTH = 64
"""Template arguments are added up to this many characters."""
LONGEST_WORD = 96
"""An identifier that is longer was generated, such as those of Tensile, and is cut down to `LENGTH` between its `_`."""
ELLIPSIS = "…"

WRAPPERS = {
    "__nv_dl_tag": 1,
    "__nv_dl_wrapper_t": 0,
    "__nv_hdl_wrapper_t": 3,
    "func_wrapper_t": 1,
    "gpu_kernel_impl": 0,
    "gpu_kernel_impl_nocast": 0,
}
"""What PyTorch and NVIDIA's compiler put around what says what is computed, and its place among the arguments."""
PLUMBING = {
    "Array",
    "array",
    "LoadWithCast",
    "LoadWithoutCast",
    "OffsetCalculator",
    "StoreWithCast",
    "StoreWithoutCast",
    "TrivialOffsetCalculator",
}
"""PyTorch's template arguments that say least."""
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
BUILT_IN = re.compile(
    r"(?:(?:un)?signed|bool|true|false|char|short|int|long|float|double|half|void|auto|const|[\s*&])+"
)
QUALIFIERS = re.compile(r"(?:[ &*]|const|volatile|noexcept|\.\w+)*")
SCOPES = re.compile(r"(?:\(anonymous \w+\)::|<unnamed>::|\b[A-Za-z_]\w*::)+")

Path: TypeAlias = tuple[tuple[str, int], ...]
"""The way from a tree's root to one of its nodes: which of a node's branches, and the place there."""


@dataclass(frozen=True)
class _Node:
    """A part of a name that is shown or left out; `label` and `after` enclose its template arguments."""

    label: str
    after: str = ""
    arguments: "tuple[_Node, ...]" = ()
    scope: "tuple[_Node, ...]" = ()
    tail: "tuple[_Node, ...]" = ()
    parameters: "tuple[_Node, ...]" = ()
    words: "tuple[_Node, ...]" = ()

    def branches(self) -> "Iterator[tuple[str, tuple[_Node, ...]]]":
        """Give the node's branches, those that tell most first."""
        yield "words", self.words
        yield "arguments", self.arguments
        yield "tail", self.tail
        yield "scope", self.scope
        yield "parameters", self.parameters


def short_names(full_names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each distinct full name, no two the same.

    Mangled names are demangled. A name that is no C++ function's, and one that is short already, stays as it is.
    """
    trees = {full: _tree(full) for full in sorted(set(full_names))}
    shown = {full: _telling(tree) for full, tree in trees.items()}
    short = {full: _written(trees[full], paths) for full, paths in shown.items()}
    for group in _shared(short):
        _tell_apart({full: trees[full] for full in group}, shown)
        short |= {full: _written(trees[full], shown[full]) for full in group}
    # Marks of omission may still coincide, and a short name may be another kernel's full one.
    while groups := _shared(short):
        short |= {full: full for group in groups for full in group}
    return short


def _shared(short: Mapping[str, str]) -> list[list[str]]:
    groups = defaultdict(list)
    for full, name in short.items():
        groups[name].append(full)
    return [group for group in groups.values() if len(group) > 1]


def _telling(tree: _Node) -> set[Path]:
    """Choose what to show: classes before numbers, the outer before the inner, as long as there is room."""
    shown: set[Path] = {()}
    if tree.words:
        # The last word of generated names counts variants.
        paths: list[Path] = [(("words", place),) for place in range(len(tree.words))]
        first, *others = paths
        shown.add(first)
        for path in (*others[-1:], *others[:-1]):
            if not _show_if_room(tree, shown, path):
                break
        return shown
    choices = sorted(_arguments(tree))
    shown.update(path for _, _, path in choices[:1])
    has_room = {True: True, False: True}
    for _, is_plain, path in choices[1:]:
        # What is in a node that is left out is left out, too.
        if path[:-1] in shown and has_room[is_plain]:
            has_room[is_plain] = _show_if_room(tree, shown, path) or not is_plain
    return shown


def _show_if_room(tree: _Node, shown: set[Path], path: Path) -> bool:
    shown.add(path)
    has_room = len(_written(tree, shown)) <= LENGTH
    if not has_room:
        shown.discard(path)
    return has_room


def _arguments(node: _Node, path: Path = ()) -> Iterator[tuple[float, bool, Path]]:
    """Give the template arguments that may be shown: how remote each is, and whether it is no class or function."""
    for place, argument in enumerate(node.arguments):
        if argument.label not in PLUMBING:
            here = (*path, ("arguments", place))
            is_plain = BUILT_IN.fullmatch(argument.label) is not None or not re.match("[A-Za-z_]", argument.label)
            yield len(here) + 1.5 * is_plain, is_plain, here
            yield from _arguments(argument, here)


def _tell_apart(trees: Mapping[str, _Node], shown: dict[str, set[Path]]) -> None:
    """Add to what is shown those parts in which trees differ, until each is told from the others."""
    labels = {full: dict(_labels(tree)) for full, tree in trees.items()}
    classes = [list(trees)]
    # The outer parts first.
    for path in sorted({path for own in labels.values() for path in own}, key=_remoteness):
        if all(len(alike) == 1 for alike in classes):
            return
        refined: list[list[str]] = []
        for alike in classes:
            parts = defaultdict(list)
            for full in alike:
                parts[labels[full].get(path)].append(full)
            refined += parts.values()
            if len(parts) > 1:
                for full in alike:
                    if path in labels[full]:
                        shown[full].update(path[:depth] for depth in range(len(path) + 1))
                        shown[full].update(_inner_scopes(path, labels[full]))
        classes = refined


def _inner_scopes(path: Path, labels: Iterable[Path]) -> list[Path]:
    """Return the scopes between one that is shown and the name: without them it would be another one's."""
    *outer, (branch, place) = path or (("", 0),)
    inner = [(*outer, ("scope", further)) for further in range(place + 1, place + 100)] if branch == "scope" else []
    return [one for one in inner if one in labels]


def _labels(node: _Node, path: Path = ()) -> Iterator[tuple[Path, tuple[str, str]]]:
    yield path, (node.label, node.after)
    for branch, nodes in node.branches():
        for place, one in enumerate(nodes):
            yield from _labels(one, (*path, (branch, place)))


BRANCHES = [branch for branch, _ in _Node("").branches()]


def _remoteness(path: Path) -> tuple[object, ...]:
    hidden = sum(BRANCHES.index(branch) > 1 for branch, _ in path)
    # The innermost lambda names the type that it computes with.
    order = [(BRANCHES.index(branch), -place if branch == "tail" else place) for branch, place in path]
    return hidden, len(path), order


def _written(node: _Node, shown: set[Path], path: Path = ()) -> str:
    def parts(branch: str, nodes: Sequence[_Node]) -> list[str]:
        # Neighbours that are left out share a mark.
        written: list[str] = []
        for place, one in enumerate(nodes):
            here = (*path, (branch, place))
            if here in shown:
                written.append(_written(one, shown, here))
            elif written[-1:] != [ELLIPSIS]:
                written.append(ELLIPSIS)
        return [] if written == [ELLIPSIS] else written

    scope = "".join(f"{one}::" for one in parts("scope", node.scope) if one != ELLIPSIS)
    words = "_".join(parts("words", node.words))
    arguments = ", ".join(parts("arguments", node.arguments))
    parameters = ", ".join(parts("parameters", node.parameters))
    tail = "".join(f"::{one}" for one in parts("tail", node.tail) if one != ELLIPSIS)
    in_brackets = (f"<{arguments}>" if arguments else "") + (f"({parameters})" if parameters else "")
    return f"{scope}{node.label}{words}{in_brackets}{tail}{node.after}"


def _tree(full: str) -> _Node:
    if ELLIPSIS in full:
        return _Node(full)
    written = _demangled(full)
    text = parse_text(written)
    function = None if text is None else _function(text)
    if function is None:
        return _Node(full)
    name, parameters = function
    node = _name_node(name, "")
    if len(node.label) > LONGEST_WORD:
        node = replace(node, label="", words=tuple(map(_Node, node.label.split("_"))))
    return replace(node, parameters=node.parameters or tuple(map(_text_node, parameters or ())))


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


def _text_node(text: Text) -> _Node:
    # The address of a function says no more than its name.
    first, *rest = text[1:] if text[:1] == ("&",) else text or ("",)
    if isinstance(first, Name) and not any(isinstance(one, Brackets) for one in rest):
        after = _flat(tuple(rest))
        if QUALIFIERS.fullmatch(after):
            return _name_node(first, after)
    return _Node(_flat(text))


def _name_node(name: Name, after: str) -> _Node:
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
    tail_nodes = tuple(_Node(_component(one)) for one in tail if one.identifier != "operator()")
    scope = tuple(_Node(_component(one)) for one in before)
    parameters = tuple(map(_text_node, telling.parameters or ()))
    if inner is not None:
        node = _text_node(inner)
        others = [_flat(one) for one in arguments if one is not inner]
        wrapper = _Node(f"{label}<{', '.join(others)}>" if others else label)
        return replace(
            node,
            after=node.after + after,
            scope=(*scope, wrapper, *node.scope),
            tail=node.tail + tail_nodes,
            parameters=node.parameters or parameters,
        )
    if (label in GENERIC or label.startswith("operator")) and before and not before[-1].identifier.startswith("("):
        parent = before[-1]
        if arguments or not parent.arguments:
            label, scope = f"{parent.identifier}::{label}", scope[:-1]
        else:
            arguments, after, label, scope = parent.arguments, f"::{label}{after}", parent.identifier, scope[:-1]
    return _Node(label, after, tuple(map(_text_node, arguments)), scope, tail_nodes, parameters)


def _component(one: Component) -> str:
    """Write a component; lambdas differ in the parameters within their braces, functions in those of their own."""
    arguments = "" if one.arguments is None else f"<{', '.join(map(_flat, one.arguments))}>"
    return SCOPES.sub("", one.identifier) + arguments


def _flat(text: Text) -> str:
    """Write a text as it was, without namespaces."""
    written = []
    for piece in text:
        if isinstance(piece, str):
            written.append(piece)
        elif isinstance(piece, Brackets):
            written.append(piece.opening + ", ".join(map(_flat, piece.texts)) + piece.closing)
        else:
            written.append(_flat_name(piece))
    return "".join(written)


def _flat_name(name: Name) -> str:
    node = _name_node(name, "")
    return _written(node, {path for path, _ in _labels(node) if all(branch == "arguments" for branch, _ in path)})
