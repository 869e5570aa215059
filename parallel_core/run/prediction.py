"""Predict before the program answers: a guess, the run that it is compared with, and what the
profiler saw of it.

The run has a separate process, as `parallel-core run` has, because a framework reads its engine and
threads once: so one notebook can predict for both engines of both frameworks.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backends.profiling import Timeline, TraceFile, timeline_in
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.explanation import about_unknown
from parallel_core.experiments.runner.guess import Guess, asked_for, judge
from parallel_core.measurement.fresh_process import measure_elsewhere
from parallel_core.measurement.result import Result
from parallel_core.system.errors import RequestError

BACKEND_VARIABLE = "PARALLEL_CORE_BACKEND"
USUAL_BACKEND = "torch"
MOST_SECONDS = 900.0
"""Seconds that a run may take: the longest experiment trains for three minutes, and a busy machine
takes several times as long.
"""


@dataclass(frozen=True, repr=False)
class Question:
    """What is asked of a reader who has not guessed yet."""

    experiment: str
    asks: str
    metric: str
    means: str
    """What the figure says, with its landmarks; empty for a metric that is not the experiment's
    main one.
    """

    def __repr__(self) -> str:
        about = f"{self.metric} is to be guessed."
        if self.means:
            about = f"{self.metric}: {self.means}."
        arguments = f'"{self.experiment}", GUESS'
        if self.metric != EXPERIMENTS[self.experiment].main.name:
            arguments += f', metric="{self.metric}"'
        return f"{self.asks}\n{about}\nYour guess? predict({arguments})"

    def _repr_markdown_(self) -> str:
        # Notebooks ask for this method.
        asks, about, call = repr(self).split("\n")
        return f"**{asks}**\n\n{about}\n\n{call.replace('predict', '`predict', 1)}`"


@dataclass(frozen=True, repr=False)
class Prediction:
    """A guess beside the result that it was compared with; `timeline` is what the profiler
    recorded, if asked for.
    """

    guess: Guess
    result: Result = field(compare=False)
    timeline: Timeline | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return "\n".join((self.guess.sentence, *_said(self.result)))

    def _repr_html_(self) -> str:
        # Notebooks ask for this method.
        guess = self.guess
        where = f"<code>{escape(guess.name)}</code> on {escape(self.result.backend['name'])}"
        figures = (guess.guessed_in_words, guess.found_in_words)
        cells = "".join(f"<td>{escape(figure)}</td>" for figure in figures)
        judged = f"{guess.reason[:1].upper()}{guess.reason[1:]}."
        return "\n".join(
            (
                "<table>",
                f"<thead><tr><th></th><th>you guessed</th><th>{guess.found_by}</th></tr></thead>",
                f"<tbody><tr><td>{where}</td>{cells}</tr></tbody>",
                "</table>",
                f"<p><b>{escape(judged)}</b></p>",
                *(f"<p>{escape(sentence)}</p>" for sentence in _said(self.result)),
            )
        )


def predict(
    experiment: str,
    guess: float | str | None = None,
    *,
    backend: str | None = None,
    metric: str | None = None,
    timeline: bool = False,
    **options: Any,
) -> Prediction | Question:
    """Hold a guess against a run of an experiment in a fresh process; without a guess, ask for one.

    A number guesses a figure, and a text such as "10 of 10" a count. `metric` names the figure or
    the count; otherwise it is the experiment's first. `backend` is the one in
    PARALLEL_CORE_BACKEND, or torch, unless it is given. `options` are those of `parallel-core run
    EXPERIMENT`: `engine="sync"`, `sizes=(64, 256)`. With `timeline` the framework's profiler
    records it once more, if the backend has a profiler. Blocks until all is done. Raises
    RequestError for a guess that is no number and no count, or impossible, and for options that the
    command refuses, and MeasurementError if the run fails; an invalid result leaves the guess open.
    """
    if experiment not in EXPERIMENTS:
        raise RequestError(about_unknown(experiment))
    declaration = EXPERIMENTS[experiment]
    if guess is None:
        metric = metric or declaration.main.name
        means = declaration.metric_named(metric).means
        return Question(experiment, declaration.question, metric, means)
    value, asked = asked_for(guess, declaration, metric or "")
    backend = backend or os.environ.get(BACKEND_VARIABLE, USUAL_BACKEND)
    result, recorded = _run(experiment, {"backend": backend, **options}, timeline)
    return Prediction(judge(value, asked, result), result, recorded)


def _run(
    experiment: str, options: Mapping[str, Any], with_timeline: bool
) -> tuple[Result, Timeline | None]:
    """Run an experiment in a fresh process; return its result, and its timeline if there is one."""
    if not with_timeline:
        return measure_elsewhere(experiment, options, MOST_SECONDS), None
    with TemporaryDirectory(prefix="parallel-core-") as folder:
        path = Path(folder) / "trace.json"
        result = measure_elsewhere(experiment, {**options, "trace": path}, MOST_SECONDS)
        timeline = timeline_in(TraceFile(path)) if path.exists() else None
    return result, timeline


def _said(result: Result) -> tuple[str, ...]:
    """Return the sentences that answer the experiment's question."""
    return (result.explanation,) if result.answer is None else result.answer.sentences
