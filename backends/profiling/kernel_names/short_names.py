"""Short names for kernels, which stay distinct: what a kernel is called, with those template arguments that tell most.

A kernel's full name has up to 10,000 characters. Its short one depends on the full one alone, so that traces can be
compared; only if two kernels of a trace would share it, both are given what tells them apart.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from backends.profiling.kernel_names.name_trees import NameTree, Path, parts_of, tree_of, write_name

__all__ = ["short_names"]

LENGTH = 72
"""Template arguments are added up to this many characters."""

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
BUILT_IN = re.compile(
    r"(?:(?:un)?signed|bool|true|false|char|short|int|long|float|double|half|void|auto|const|[\s*&])+"
)

BRANCHES = [branch for branch, _ in NameTree("").branches()]
"""Those that tell most come first; what is in others than the first two is shown only if need be."""


def short_names(full_names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each distinct full name, no two the same.

    Mangled names are demangled. A name that is no C++ function's, and one that is short already, stays as it is.
    """
    trees = {full: tree_of(full) for full in sorted(set(full_names))}
    shown = {full: _telling(tree) for full, tree in trees.items()}
    short = {full: write_name(trees[full], paths) for full, paths in shown.items()}
    for group in _shared(short):
        _tell_apart({full: trees[full] for full in group}, shown)
        short |= {full: write_name(trees[full], shown[full]) for full in group}
    # Marks of omission may still coincide, and a short name may be another kernel's full one.
    while groups := _shared(short):
        short |= {full: full for group in groups for full in group}
    return short


def _shared(short: Mapping[str, str]) -> list[list[str]]:
    groups = defaultdict(list)
    for full, name in short.items():
        groups[name].append(full)
    return [group for group in groups.values() if len(group) > 1]


def _telling(tree: NameTree) -> set[Path]:
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


def _show_if_room(tree: NameTree, shown: set[Path], path: Path) -> bool:
    shown.add(path)
    has_room = len(write_name(tree, shown)) <= LENGTH
    if not has_room:
        shown.discard(path)
    return has_room


def _arguments(node: NameTree, path: Path = ()) -> Iterator[tuple[float, bool, Path]]:
    """Give the template arguments that may be shown: how remote each is, and whether it is no class or function."""
    for place, argument in enumerate(node.arguments):
        if argument.label not in PLUMBING:
            here = (*path, ("arguments", place))
            is_plain = BUILT_IN.fullmatch(argument.label) is not None or not re.match("[A-Za-z_]", argument.label)
            yield len(here) + 1.5 * is_plain, is_plain, here
            yield from _arguments(argument, here)


def _tell_apart(trees: Mapping[str, NameTree], shown: dict[str, set[Path]]) -> None:
    """Add to what is shown those parts in which trees differ, until each is told from the others."""
    parts = {full: dict(parts_of(tree)) for full, tree in trees.items()}
    classes = [list(trees)]
    # The outer parts first.
    for path in sorted({path for own in parts.values() for path in own}, key=_remoteness):
        if all(len(alike) == 1 for alike in classes):
            return
        refined: list[list[str]] = []
        for alike in classes:
            by_part = defaultdict(list)
            for full in alike:
                by_part[parts[full].get(path)].append(full)
            refined += by_part.values()
            if len(by_part) > 1:
                for full in alike:
                    if path in parts[full]:
                        shown[full].update(path[:depth] for depth in range(len(path) + 1))
                        shown[full].update(_inner_scopes(path, parts[full]))
        classes = refined


def _inner_scopes(path: Path, parts: Iterable[Path]) -> list[Path]:
    """Return the scopes between one that is shown and the name: without them it would be another one's."""
    if not path or path[-1][0] != "scope":
        return []
    outer, (_, place) = path[:-1], path[-1]
    return [one for one in parts if one[:-1] == outer and one and one[-1] > ("scope", place) and one[-1][0] == "scope"]


def _remoteness(path: Path) -> tuple[object, ...]:
    hidden = sum(BRANCHES.index(branch) > 1 for branch, _ in path)
    # The innermost lambda names the type that it computes with.
    order = [(BRANCHES.index(branch), -place if branch == "tail" else place) for branch, place in path]
    return hidden, len(path), order
