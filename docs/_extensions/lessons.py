"""Lessons: what a cell showed on each framework stands in tabs, and each answer is folded under its
question.

`make notebooks` stores each lesson twice. A page is read from one of them, with the outputs of
both.
"""

import json

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.locale import _
from sphinx.transforms import SphinxTransform
from sphinx.util.typing import ExtensionMetadata
from sphinx_design.shared import create_component, is_component

__all__ = ["setup"]

OTHER = "on-mxnet"
FRAMEWORKS = ("MXNet", "PyTorch", "JAX", "parallel-core")
START = '<details class="answer"><summary>{}</summary>'


def setup(app: Sphinx) -> ExtensionMetadata:
    """Read each lesson with the other framework's outputs, and arrange its page."""
    app.connect("source-read", add_cells_of_the_other)
    app.add_transform(Arrange)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_cells_of_the_other(app: Sphinx, page: str, source: list[str]) -> None:
    """Put behind each cell with outputs the same cell as it was run on the other framework."""
    path = app.env.doc2path(page)
    other = path.parent / OTHER / path.name
    if not other.is_file():
        return
    app.env.note_dependency(other)
    notebook, cells = json.loads(source[0]), []
    for own, its in zip(
        notebook["cells"], json.loads(other.read_text(encoding="utf-8"))["cells"], strict=True
    ):
        cells.append(own)
        if its.get("outputs"):
            cells.append(
                {**its, "id": f"{its['id']}-{OTHER}", "metadata": {"tags": ["remove-input", OTHER]}}
            )
    source[0] = json.dumps({**notebook, "cells": cells})


class Arrange(SphinxTransform):
    """Make tabs of a cell's outputs, and of code under frameworks' names; move each answer into its
    fold.
    """

    default_priority = 700  # Translations are in their places.

    def apply(self, **_kwargs: object) -> None:
        for cell in list(self.document.findall(nodes.container)):
            if f"tag_{OTHER}" in cell["classes"]:
                cell.replace_self(
                    tabs(tab("PyTorch", previous(cell).pop()), tab("MXNet", cell.pop()))
                )
        for code in list(self.document.findall(nodes.literal_block)):
            name = previous(code)
            if isinstance(name, nodes.paragraph) and name.astext() in FRAMEWORKS:
                if not is_component(previous(name), "tab-set"):
                    name.parent.insert(name.parent.index(name), tabs())
                group = previous(name)
                for moved in (name, code):
                    group.parent.remove(moved)
                group += tab(name.astext(), code)
        for fold in list(self.document.findall(nodes.raw)):
            if fold.astext().startswith("<details>"):
                shown = previous(fold)
                fold.parent.remove(shown)
                fold.replace_self([nodes.raw("", START.format(_("Answer")), format="html"), shown])


def previous(node: nodes.Element) -> nodes.Element:
    return node.parent[node.parent.index(node) - 1]


def tabs(*items: nodes.Element) -> nodes.Element:
    return create_component("tab-set", classes=["sd-tab-set"], children=items)


def tab(name: str, shown: nodes.Element) -> nodes.Element:
    label = nodes.rubric(name, name, classes=["sd-tab-label"], sync_id=name, sync_group="framework")
    content = create_component("tab-content", classes=["sd-tab-content", "cell"], children=[shown])
    return create_component(
        "tab-item", classes=["sd-tab-item"], selected=False, children=[label, content]
    )
