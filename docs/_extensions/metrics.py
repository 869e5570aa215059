"""The directive `metrics`: what each experiment counts and measures, from its declaration and from
`reference/metrics.toml`.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from parallel_core.experiments import EXPERIMENTS, Experiment

__all__ = ["described", "setup"]

WRITTEN = Path(__file__).parents[1] / "reference" / "metrics.toml"
NOTATION = "notation"
"""The key of what an experiment's formulas name."""


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("metrics", _Metrics)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _Metrics(SphinxDirective):
    """All experiments that count or measure something, each as a section."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(WRITTEN))
        written = _written()
        parts = []
        for name, texts in described().items():
            terms = (
                f"{', '.join(f'`{one}`' for one in names)}\n: {text}"
                for names, text in texts.items()
            )
            parts += [f"## {name}", written.get(name, {}).get(NOTATION, ""), *terms]
        return self.parse_text_to_nodes("\n\n".join(parts), allow_section_headings=True)


def described() -> dict[str, dict[tuple[str, ...], str]]:
    """Return by experiment what its counts and figures are, those that share a text together.

    Raises ValueError for one of which nothing is said.
    """
    written = _written()
    return {
        name: _of(experiment, written.get(name, {})) for name, experiment in EXPERIMENTS.items()
    }


def _of(experiment: Experiment, written: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    by_names = {tuple(key.split(", ")): text for key, text in written.items() if key != NOTATION}
    together = {name: names for names in by_names for name in names}
    counted = {count.name: f"How many {count.counted}." for count in experiment.counts}
    means = {
        metric.name: f"{metric.means[0].upper()}{metric.means[1:]}." if metric.means else ""
        for metric in experiment.metrics
    }
    texts: dict[tuple[str, ...], str] = {}
    for name in (*counted, *means, *together):
        names = together.get(name, (name,))
        more = by_names.get(names, "")
        said = means.get(name, "") if len(names) == 1 else ""
        text = more or counted[name] if name in counted else f"{said} {more}".strip()
        if not text:
            raise ValueError(f"nothing says what {name} of {experiment.name} is: {WRITTEN.name}")
        texts.setdefault(names, text)
    return texts


def _written() -> dict[str, dict[str, str]]:
    return tomllib.loads(WRITTEN.read_text(encoding="utf-8"))
