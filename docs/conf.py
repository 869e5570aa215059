"""How Sphinx builds the site: from docs/, offline, and with nothing that a page loads from
elsewhere.
"""

import sys
from pathlib import Path

from backends.registry import package_version

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = html_title = "parallel-core"
html_show_copyright = False
release = version = package_version()
extensions = [
    "commands",
    "docstrings",
    "formulas",
    "json_keys",
    "lessons",
    "metrics",
    "rows",
    "search_languages",
    "translations",
    "unknown",
    "variants",
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
]
# What lessons showed on MXNet stands in their pages.
exclude_patterns = ["_build", "lessons/on-mxnet"]
nitpicky = True
highlight_language = "text"
# Two dashes begin an option.
smartquotes_action = "qe"
# Names of other projects have no page here.
nitpick_ignore_regex = [("py:.*", r"(?!(backends|parallel_core)\.).*")]

language = "en"
locale_dirs = ["locales"]
# One catalogue, so that what two pages say alike is translated once; where it stands would change
# with each page.
gettext_compact = "guides"
gettext_location = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# The pages show what the notebooks stored: `make notebooks` runs them.
nb_execution_mode = "off"
nb_merge_streams = True
# An output may have a table, which plain CommonMark does not know.
nb_render_markdown_format = "myst"
copybutton_prompt_text = "$ "

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"
add_module_names = False
# Docstrings write code as Markdown does.
default_role = "literal"

html_theme = "furo"
pygments_dark_style = "github-dark"
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/languages.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/english.html",
        "sidebar/scroll-end.html",
    ]
}
html_static_path = ["_static"]
html_css_files = ["site.css", "languages.css"]
html_copy_source = False
html_show_sourcelink = False
# A browser refuses to read the pages that were found, if they are opened from a folder.
html_js_files = [
    (None, {"body": "DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== 'file:'"})
]
html_math_renderer = "docutils"
