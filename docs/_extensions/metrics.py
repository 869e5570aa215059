"""The directive `metrics`: what each experiment counts and measures."""

from described_metrics import NOTATION, WRITTEN, described, written
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("metrics", _Metrics)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _Metrics(SphinxDirective):
    """All experiments that count or measure something, each as a section."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(WRITTEN))
        texts_written = written()
        parts = []
        for name, texts in described().items():
            terms = (
                f"{', '.join(f'`{one}`' for one in names)}\n: {text}"
                for names, text in texts.items()
            )
            parts += [f"## {name}", texts_written.get(name, {}).get(NOTATION, ""), *terms]
        return self.parse_text_to_nodes("\n\n".join(parts), allow_section_headings=True)
