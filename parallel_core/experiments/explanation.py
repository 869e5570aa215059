"""The explanation of an experiment before it runs: its module's docstring, part by part.

The first line is the question. Paragraphs that begin with one of HEADINGS follow in that order; a
paragraph without one belongs to the part above it.
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
    """A question, and under each of HEADINGS the paragraphs that it has."""

    question: str
    parts: tuple[tuple[str, tuple[str, ...]], ...]

    def _repr_markdown_(self) -> str:
        # Notebooks ask for this method.
        parts = [f"**{heading}.** " + "\n\n".join(paragraphs) for heading, paragraphs in self.parts]
        return "\n\n".join((f"**{self.question}**", *parts))


def explain(name: str) -> Explanation:
    """Return what an experiment says of itself, by its name.

    Raises RequestError for one that is not known.
    """
    if name not in EXPERIMENTS:
        raise RequestError(about_unknown(name))
    return explanation(EXPERIMENTS[name])


def about_unknown(name: str) -> str:
    """Say that no experiment has this name, and which one holds a part of it, or may be meant."""
    for experiment in EXPERIMENTS.values():
        if name in experiment.contains:
            return f"{name!r} is a part of the experiment {experiment.name!r}: name that"
    return unknown("experiment", name, EXPERIMENTS)


def explanation(experiment: Experiment) -> Explanation:
    """Read an experiment's explanation from its module.

    Raises ValueError for a docstring of another form.
    """
    module = import_module(experiment.program.__module__)
    question, *paragraphs = (
        " ".join(text.split()) for text in (inspect.getdoc(module) or "").split("\n\n")
    )
    parts: dict[str, list[str]] = {}
    heading = ""
    for paragraph in paragraphs:
        label, _, rest = paragraph.partition(": ")
        begins = bool(rest) and label in HEADINGS
        heading = label if begins else heading
        parts.setdefault(heading, []).append(rest if begins else paragraph)
    if tuple(parts) != HEADINGS:
        raise ValueError(
            f"{module.__name__} explains {', '.join(parts)}, and not {', '.join(HEADINGS)}"
        )
    return Explanation(question, tuple((heading, tuple(texts)) for heading, texts in parts.items()))
