"""Formulas as MathML, which browsers draw by themselves: MathJax would be loaded from elsewhere."""

from functools import partial
from typing import NoReturn

from docutils.nodes import Element, SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

__all__ = ["setup"]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the renderer `mathml`."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(partial(_draw, False), None), block_renderers=(partial(_draw, True), None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _draw(as_block: bool, page: HTML5Translator, node: Element) -> NoReturn:
    page.body.append(tex2mathml(node.astext(), as_block=as_block))
    raise SkipNode
