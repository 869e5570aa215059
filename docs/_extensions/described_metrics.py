"""What experiments count and measure, from their declarations and `reference/metrics.toml`."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from parallel_core.experiments import EXPERIMENTS, Experiment

__all__ = ["NOTATION", "WRITTEN", "described", "written"]

WRITTEN = Path(__file__).parents[1] / "reference" / "metrics.toml"
NOTATION = "notation"
"""The key of what an experiment's formulas name."""


def described() -> dict[str, dict[tuple[str, ...], str]]:
    """Return by experiment what its counts and figures are, those that share a text together.

    Raises ValueError for one of which nothing is said.
    """
    texts = written()
    return {name: _of(experiment, texts.get(name, {})) for name, experiment in EXPERIMENTS.items()}


def _of(experiment: Experiment, texts_written: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    by_names = {
        tuple(key.split(", ")): text for key, text in texts_written.items() if key != NOTATION
    }
    together = {name: names for names in by_names for name in names}
    counted = {count.name: f"How many {count.counted}." for count in experiment.counts}
    means = {
        metric.name: f"{metric.means[0].upper()}{metric.means[1:]}." if metric.means else ""
        for metric in experiment.metrics
    }
    texts: dict[tuple[str, ...], str] = {}
    said_before: set[str] = set()
    for name in (*counted, *means, *together):
        names = together.get(name, (name,))
        more = by_names.get(names, "")
        said = means.get(name, "") if len(names) == 1 else ""
        if more and said in said_before:
            said = ""
        said_before.add(said)
        text = more or counted[name] if name in counted else f"{said} {more}".strip()
        if not text:
            raise ValueError(f"nothing says what {name} of {experiment.name} is: {WRITTEN.name}")
        texts.setdefault(names, text)
    return texts


def written() -> dict[str, dict[str, str]]:
    """Return what the file says, by experiment and name."""
    return tomllib.loads(WRITTEN.read_text(encoding="utf-8"))
