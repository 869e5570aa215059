"""Formulas as plain HTML, by docutils: MathJax would be loaded from elsewhere, and MathML needs
fonts that few have.
"""

from functools import partial
from typing import NoReturn

from docutils.nodes import Element, SkipNode
from docutils.utils.math.math2html import math2html
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

__all__ = ["setup"]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the renderer `docutils`."""
    app.add_html_math_renderer(
        "docutils",
        inline_renderers=(partial(_draw, "span"), None),
        block_renderers=(partial(_draw, "div"), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _draw(tag: str, page: HTML5Translator, node: Element) -> NoReturn:
    page.body.append(f'<{tag} class="formula">{math2html(node.astext())}</{tag}>')
    raise SkipNode
