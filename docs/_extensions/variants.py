"""The directive `variants`: a definition of each of the variants of how a framework schedules."""

from itertools import groupby

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from backends.registry.variants import all_variants, in_words

__all__ = ["setup"]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("variants", _Variants)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _Variants(SphinxDirective):
    """All variants, by the setting that they are values of."""

    def run(self) -> list[nodes.Node]:
        parts = []
        for setting, own in groupby(all_variants(), key=lambda variant: variant.setting):
            parts.append(f"## {setting[0].upper()}{setting[1:]}")
            for variant in own:
                where = ", ".join(in_words(variant.name))
                note = "; the default" if variant.default else ""
                parts.append(f"`{variant.name}` ({where}{note})\n: {variant.meaning}")
        return self.parse_text_to_nodes("\n\n".join(parts), allow_section_headings=True)
