"""Build the site's first page and the guides in each language, beside the English site.

`sphinx -D language=ko` reads only the pages that are translated; what they say of the others leads
to the English ones. English stands at the root of the site, and each other language in a folder of
its own: html/ko/, html/vi/, html/zh_CN/. Catalogues are in docs/locales: guides.po for the pages,
sphinx.po for what the theme says.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.matching import Matcher
from sphinx.util.typing import ExtensionMetadata

__all__ = ["LANGUAGES", "SOURCE", "setup"]

LANGUAGES = {"en": "English", "ko": "한국어", "vi": "Tiếng Việt", "zh_CN": "简体中文"}
"""Each language by its own name; the first one is what the pages are written in."""
SOURCE = "en"
TRANSLATED = ("index", "lessons/**", "search", "start/**")
"""The pages that exist in every language."""
ALSO_TRANSLATED = Matcher(TRANSLATED)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Choose the pages of a build, and give each page the switch."""
    # Sphinx learns at 800 which suffixes MyST-NB reads.
    app.connect("config-inited", leave_out_what_is_not_translated, priority=900)
    app.connect("html-page-context", add_switch)
    app.add_transform(KeepWhatIsNoProse)
    app.add_post_transform(LeadToEnglish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


@dataclass(frozen=True)
class Choice:
    """One entry of the switch: a language, and where a page leads to in it."""

    tag: str
    name: str
    address: str
    is_current: bool


def leave_out_what_is_not_translated(app: Sphinx, config: Config) -> None:
    """Exclude all other pages, in a build for translators and in one of a translation."""
    if config.language == SOURCE and not app.tags.has("for_translators"):
        return
    root = Path(app.srcdir)
    pages = chain.from_iterable(root.rglob(f"*{suffix}") for suffix in config.source_suffix)
    names = [str(page.relative_to(root).with_suffix("")) for page in pages]
    config.exclude_patterns += [any_suffix(name) for name in names if not ALSO_TRANSLATED(name)]
    # They stay in the tables of contents, which leave them out.
    config.suppress_warnings += ["toc.excluded"]


def any_suffix(page: str) -> str:
    # Of a page that it does not read, Sphinx does not know the suffix.
    return f"{page}.*"


def folder(language: str) -> str:
    """Return where a language's site stands below the root, with a slash at its end."""
    return "" if language == SOURCE else f"{language}/"


def way_to_root(page: str, language: str) -> str:
    """Return the way from a page of one language's site to the root of the English one."""
    return "../" * (page.count("/") + (language != SOURCE))


def address_of(app: Sphinx, target: str, page: str, language: str = SOURCE) -> str:
    """Return what leads from a page of the site that is built to one of a language's site."""
    return (
        way_to_root(page, app.config.language)
        + folder(language)
        + app.builder.get_target_uri(target)
    )


def choices(app: Sphinx, page: str) -> list[Choice]:
    """Return where the switch on a page leads to: the same page if the language has it, else its
    first one.
    """
    here = app.config.language
    listed = []
    for language, name in LANGUAGES.items():
        there = page if language in (here, SOURCE) or ALSO_TRANSLATED(page) else app.config.root_doc
        address = address_of(app, there, page, language)
        listed.append(Choice(language.replace("_", "-"), name, address, language == here))
    return listed


def add_switch(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: nodes.document | None
) -> None:
    """Give a page's templates the languages, and tell search engines where the page stands in
    each.
    """
    context["languages"] = choices(app, page)
    context["english_page"] = lambda target: address_of(app, target, page)
    if ALSO_TRANSLATED(page):
        context["metatags"] = context.get("metatags", "") + "".join(
            f'\n<link rel="alternate" hreflang="{choice.tag}" href="{choice.address}">'
            for choice in context["languages"]
        )


class KeepWhatIsNoProse(SphinxTransform):
    """Keep from translators what a notebook's program said, which changes with each run, and where
    images are.
    """

    default_priority = (
        5  # Sphinx takes the messages at 10, and puts translations in their places at 20.
    )

    def apply(self, **_: Any) -> None:
        for output in self.document.findall(is_output):
            for node in output.findall(nodes.TextElement):
                # Sphinx takes inline nodes of which this is said for marks of its own, and
                # dissolves them.
                if not isinstance(node, nodes.Inline):
                    node["translatable"] = False
        for paragraph in self.document.findall(nodes.paragraph):
            # An image's text is a message of its own; code in a cell of a table is the same in
            # every language.
            said = [child for child in paragraph.children if child.astext()]
            if all(isinstance(child, (nodes.image, nodes.literal)) for child in said):
                paragraph["translatable"] = False


def is_output(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code_output"


class LeadToEnglish(SphinxPostTransform):
    """Let links to pages that are not translated lead to the English ones."""

    default_priority = 5  # MyST looks for pages at 9, and warns of those that are not there.

    def run(self, **_: Any) -> None:
        for link in list(self.document.findall(pending_xref)):
            if link["reftype"] in ("doc", "myst") and link["refdomain"] in ("doc", "std"):
                self.replace(link)

    def replace(self, link: pending_xref) -> None:
        page: str = link["reftarget"]
        if any_suffix(page) not in self.config.exclude_patterns:
            return
        address = address_of(self.app, page, self.env.docname)
        section = link.get("reftargetid")
        address += f"#{section}" if section else ""
        text: Iterable[nodes.Node] = link.children or [nodes.Text(page)]
        link.replace_self(nodes.reference("", "", *text, internal=True, refuri=address))
