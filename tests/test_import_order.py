"""Imports run one way: no circle between files or folders, nothing runs up, and a folder's listing
fits on a screen.

Every import counts, also one inside a function or for type checkers alone: a reader follows it all
the same.
"""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import FRAMEWORKS
from tests.tree import ROOT, tracked

PACKAGES = ("backends", "parallel_core", "benchmarks")
MAX_ENTRIES = 15
UNREAD = ("__init__.py", "py.typed")
"""What a reader of a listing passes over: a folder's own file, and a mark for type checkers."""
ORDER = {
    "backends": (
        ("errors",),
        ("devices", "arrays"),
        ("host", "protocol"),
        ("base",),
        ("registry",),
        ("installation",),
        ("process_groups", "profiling"),
        # A framework's folder knows nothing of another framework's.
        (*FRAMEWORKS, "numpy"),
        ("conformance",),
    ),
    "parallel_core": (
        ("system",),
        ("measurement",),
        ("traces",),
        ("training",),
        ("experiments",),
        ("run",),
        ("compare", "labs"),
        ("report",),
        ("doctor",),
        ("terminal",),
        ("jobs",),
        ("command_line",),
        ("__main__",),
    ),
    # What is measured against knows nothing of what measures it.
    "benchmarks": (("harness", "plain"), ("workers",)),
}
"""What may be imported by whom: each row by the rows below it, and never by its own row or those
above.
"""


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in tracked(*PACKAGES, suffix=".py")
}
"""Every module of the packages; a package is named without its `__init__`."""


def imported(path: Path) -> Iterator[str]:
    """Iterate over the modules of the packages that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in names]
        else:
            continue
        yield from (name for name in names if name in MODULES)


FILES: Mapping[str, set[str]] = {
    name: set(imported(path)) - {name} for name, path in MODULES.items()
}


def children(package: str) -> dict[str, set[str]]:
    """Return what each file and folder in a package imports of the others there."""
    child_of = {
        module: module.removeprefix(f"{package}.").partition(".")[0]
        for module in MODULES
        if module.startswith(f"{package}.")
    }
    graph: dict[str, set[str]] = {child: set() for child in child_of.values()}
    for module, child in child_of.items():
        imported_children = {child_of[other] for other in FILES[module] if other in child_of}
        graph[child] |= imported_children - {child}
    return graph


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the first circle of a graph; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    assert " -> ".join(circle(FILES)) == ""


def test_no_folders_import_each_other_in_a_circle() -> None:
    folders = [module for module, path in MODULES.items() if path.name == "__init__.py"]
    circles = {folder: circle(children(folder)) for folder in folders}
    assert [folder for folder in folders if circles[folder]] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_import_runs_up_within_a_package(package: str) -> None:
    ranks = {name: rank for rank, row in enumerate(ORDER[package]) for name in row}
    lowest_rank = len(ORDER[package])
    graph = children(package)
    has_order_of_all = package != "benchmarks"
    if has_order_of_all:
        assert graph.keys() <= ranks.keys(), "every file and folder has its place in ORDER"
    running_up = []
    for child, imported_children in graph.items():
        rank = ranks.get(child, lowest_rank)
        running_up += [
            f"{package}.{child} imports {package}.{other}"
            for other in imported_children
            if ranks.get(other, -1) >= rank
        ]
    assert running_up == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_imports_a_later_one(package: str) -> None:
    later_packages = PACKAGES[PACKAGES.index(package) + 1 :]
    running_up = []
    for module, imported_modules in FILES.items():
        if module.partition(".")[0] == package:
            running_up += [
                f"{module} imports {other}"
                for other in imported_modules
                if other.startswith(later_packages)
            ]
    assert running_up == []


def test_a_folder_s_listing_fits_on_a_screen() -> None:
    listings: dict[str, set[str]] = {}
    for path in tracked():
        # A file and the folders that hold it, from the file to the root.
        entries = [path, *(ROOT / folder for folder in path.relative_to(ROOT).parents)]
        for entry, folder in pairwise(entries):
            if entry.name not in UNREAD and not entry.name.startswith("."):
                listings.setdefault(str(folder.relative_to(ROOT)), set()).add(entry.name)
    long_listings = {
        folder: len(names) for folder, names in listings.items() if len(names) > MAX_ENTRIES
    }
    assert listings["."] >= {"README.md", "tests"}
    assert long_listings == {}
