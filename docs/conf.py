"""How Sphinx builds the site: from docs/, offline, and with nothing that a page loads from elsewhere."""

from importlib.metadata import version as version_of
from typing import NoReturn

from docutils.nodes import Element, SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

project = "parallel-core"
author = "the authors of parallel-core"
release = version = version_of("parallel-core")
extensions = ["myst_nb", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
# A code span stands in docstrings as it does in Markdown.
default_role = "literal"
nitpicky = True
toc_object_entries = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# The pages show what the notebooks stored: `make notebooks` runs them.
nb_execution_mode = "off"
nb_merge_streams = True
# No widget is shown, so no page needs the script that would be loaded for them.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
copybutton_prompt_text = "$ "

html_theme = "furo"
html_title = "parallel-core"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"


def setup(app: Sphinx) -> None:
    """Let formulas be MathML, which browsers draw by themselves: MathJax would be loaded from elsewhere."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda page, node: draw_formula(page, node, as_block=False), None),
        block_renderers=(lambda page, node: draw_formula(page, node, as_block=True), None),
    )


def draw_formula(page: HTML5Translator, node: Element, as_block: bool) -> NoReturn:
    page.body.append(tex2mathml(node.astext(), as_block=as_block))
    raise SkipNode
