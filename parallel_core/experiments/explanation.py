"""The explanation of an experiment before it runs: its question, and its module's docstring.

The docstring's first paragraph says what the module is about. Paragraphs that begin with one of
HEADINGS follow in that order; a paragraph without one belongs to the part above it.
"""

import inspect
from dataclasses import dataclass
from importlib import import_module

from backends.errors import unknown
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.system.errors import RequestError

HEADINGS = ("Book", "Prediction", "Method", "Look at", "Read")


@dataclass(frozen=True)
class Explanation:
    """A question, and the paragraphs under each of HEADINGS."""

    question: str
    parts: tuple[tuple[str, tuple[str, ...]], ...]

    def _repr_markdown_(self) -> str:
        """Return the explanation in Markdown, for notebooks."""
        texts = [f"**{self.question}**"]
        for heading, paragraphs in self.parts:
            texts.append(f"**{heading}.** " + "\n\n".join(paragraphs))
        return "\n\n".join(texts)


def explain(name: str) -> Explanation:
    """Return the explanation of an experiment by its name.

    Raises RequestError if there is no such experiment.
    """
    if name not in EXPERIMENTS:
        raise RequestError(about_unknown(name))
    return explanation(EXPERIMENTS[name])


def about_unknown(name: str) -> str:
    """Say that no experiment has this name, and which one contains it as a part or may be meant."""
    for experiment in EXPERIMENTS.values():
        if name in experiment.contains:
            return f"{name!r} is a part of the experiment {experiment.name!r}: name that"
    return unknown("experiment", name, EXPERIMENTS)


def explanation(experiment: Experiment) -> Explanation:
    """Read an experiment's explanation from its module.

    Raises ValueError for a docstring of another form.
    """
    module = import_module(experiment.program.__module__)
    docstring = inspect.getdoc(module) or ""
    _about, *paragraphs = (" ".join(text.split()) for text in docstring.split("\n\n"))
    parts: dict[str, list[str]] = {}
    heading = ""
    for paragraph in paragraphs:
        label, _, text = paragraph.partition(": ")
        if text and label in HEADINGS:
            heading = label
        else:
            text = paragraph
        parts.setdefault(heading, []).append(text)
    if tuple(parts) != HEADINGS:
        present, expected = ", ".join(parts), ", ".join(HEADINGS)
        raise ValueError(f"{module.__name__} explains {present}, and not {expected}")
    by_heading = tuple((heading, tuple(texts)) for heading, texts in parts.items())
    return Explanation(experiment.question, by_heading)
