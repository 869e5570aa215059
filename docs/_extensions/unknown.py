"""The directive `unknown`: what a profiler leaves open whatever program it records, and the code
that says so.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from parallel_core.traces.trust import LACKING

__all__ = ["ALWAYS", "ON_CPUS", "ON_GPUS", "QUESTIONS", "setup"]

PROFILERS = ("PyTorch", "JAX", "MXNet")
ALWAYS, ON_CPUS, ON_GPUS = "unknown", "unknown on CPUs", "unknown on GPUs and TPUs"
KNOWN = "–"


class Question(NamedTuple):
    """What a reader asks of a recording."""

    words: str
    code: str
    """Why it is open."""
    unknown: Mapping[str, str]
    """Where it is, by profiler."""


QUESTIONS = (
    Question(
        "which call launched an operation, and how long that waited",
        "no-links",
        {"JAX": ON_GPUS, "MXNet": ALWAYS},
    ),
    Question(
        "when Python continued",
        "no-launches",
        {"PyTorch": ON_CPUS, "MXNet": ALWAYS},
    ),
    Question(
        "what was exchanged before the backward pass was over",
        "no-backward-pass",
        {"JAX": ALWAYS},
    ),
    Question(
        "what share of the copies is hidden",
        "no-copies",
        {"PyTorch": ON_CPUS, "JAX": ON_CPUS},
    ),
    Question(
        "which rank waited for which",
        "not-matched",
        {"JAX": ALWAYS, "MXNet": ALWAYS},
    ),
    Question(
        "how many ranks the job has",
        "not-said",
        {"JAX": ALWAYS, "MXNet": ALWAYS},
    ),
)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directive."""
    app.add_directive("unknown", _Unknown)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _Unknown(SphinxDirective):
    """A table of questions by profilers."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(_lines()))


def _lines() -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| question | code | what is missing | {' | '.join(PROFILERS)} |"
    yield "| --- " * (3 + len(PROFILERS)) + "|"
    for question in QUESTIONS:
        where = [question.unknown.get(profiler, KNOWN) for profiler in PROFILERS]
        missing = LACKING[question.code]
        yield f"| {question.words} | `{question.code}` | {missing} | {' | '.join(where)} |"
