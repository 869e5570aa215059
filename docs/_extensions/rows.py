"""The directive `rows`: what each row of a comparison's table is, from the declarations."""

from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.metrics import Metric

__all__ = ["definitions", "setup"]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("rows", _Rows)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _Rows(SphinxDirective):
    """The rows of all experiments as a list of definitions."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n\n".join(definitions()))


def definitions() -> Iterator[str]:
    """Yield for each row of a comparison's table its title, experiment, unit and meaning."""
    for experiment in EXPERIMENTS.values():
        for count in experiment.counts:
            if count.title:
                yield f"{count.title} (`{experiment.name}`, of all)\n: How many {count.counted}."
        for metric in experiment.metrics:
            if metric.title or metric is experiment.main:
                where = f"`{experiment.name}`{_unit(metric)}"
                yield f"{metric.heading} ({where})\n: {_meaning(metric, experiment)}"


def _unit(metric: Metric) -> str:
    """Return the unit of a metric, after a comma; empty for a ratio or a number."""
    if metric.in_percent:
        return ", %"
    if metric.name.endswith("_seconds"):
        return ", seconds"
    return ""


def _meaning(metric: Metric, experiment: Experiment) -> str:
    """Say what a metric is."""
    means = metric.means or f"see [`{metric.name}`](metrics.md#{experiment.name})"
    return f"{means[0].upper()}{means[1:]}."
