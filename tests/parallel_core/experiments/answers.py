"""What every answer keeps to, whatever was measured."""

import re

import click

from parallel_core.command_line.run import run
from parallel_core.measurement.result import Result

LONGEST = 220
"""Characters of a sentence, without the bounds of its figures."""
BOUNDS = re.compile(r" \(−?[\d.,]+(?:–| … )−?[\d.,]+%?\)")


def check_answer(result: Result) -> None:
    """Assert that a result has an answer of two or three short sentences with figures, or says why it has none."""
    assert result.answer is not None
    sentences, change = result.answer.sentences, result.answer.would_change
    assert all(sentence.endswith(".") for sentence in (*sentences, change))
    assert options_in(" ".join((*sentences, change))) <= options_of(result.experiment)
    if result.problems or result.explanation.startswith("No verdict: "):
        (sentence,) = sentences
        assert sentence.startswith(("No verdict: ", "No answer: "))
        return
    assert sentences[0] == result.explanation
    assert 1 <= len(sentences) <= 3
    for sentence in sentences:
        assert re.search(r"\d", sentence), sentence
    for sentence in (*sentences, change):
        assert len(BOUNDS.sub("", sentence)) <= LONGEST, sentence


def options_in(text: str) -> set[str]:
    """Return the options that a text names."""
    return set(re.findall(r"--[a-z][a-z-]*", text))


def options_of(experiment: str) -> set[str]:
    """Return the options of an experiment's command."""
    command = run.get_command(click.Context(run), experiment)
    assert command is not None
    return {option for parameter in command.params for option in parameter.opts}
