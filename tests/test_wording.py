"""What a user reads is plain: words that stopped readers are in no help, message, metric,
explanation or page.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module

import pytest

from parallel_core.experiments import EXPERIMENTS
from tests.parallel_core.command_line.test_bounds import commands
from tests.tree import ROOT, tracked

WORST = re.compile(
    r"\b(of (its|their) own|by turns|(tells?|told) apart|foretells?|held against|mends?|[x×] as "
    r"(fast|long)"
    r"|times as fast|products? of matrices|which share|(is|are) not shown|no difference shown)\b",
    re.IGNORECASE,
)
NOT_PROSE = re.compile(
    r"<!-- table:.*?<!-- end -->|^ *```.*?^ *```|`[^`\n]*`", re.DOTALL | re.MULTILINE
)


Texts = Iterator[tuple[str, str]]
"""Texts that users read, each with the place where it stands."""


def _commands() -> Texts:
    for names, command in commands():
        path = " ".join(("parallel-core", *names))
        yield path, command.help or ""
        for parameter in command.params:
            yield f"{path} {parameter.name}", getattr(parameter, "help", None) or ""


def _measured() -> Texts:
    for name, experiment in EXPERIMENTS.items():
        module = import_module(experiment.program.__module__)
        yield f"{name} --explain", inspect.getdoc(module) or ""
        for metric in experiment.metrics:
            meanings = [band.says for band in metric.bands]
            yield f"{name} {metric.name}", " ".join((metric.means, *meanings))


def _messages() -> Texts:
    for path in tracked("backends", "parallel_core", suffix=".py"):
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.Raise):
                nodes = ast.walk(statement)
                texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
                yield f"{path.relative_to(ROOT)}:{statement.lineno}", " ".join(texts)


def _pages() -> Texts:
    for path in (ROOT / "README.md", *tracked("docs", suffix=".md")):
        # What is no prose leaves its lines.
        prose = NOT_PROSE.sub(lambda match: "\n" * match[0].count("\n"), path.read_text())
        for number, line in enumerate(prose.split("\n"), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


@pytest.mark.parametrize("source", [_commands, _measured, _messages, _pages])
def test_no_text_has_a_word_that_stopped_a_reader(source: Callable[[], Texts]) -> None:
    texts = list(source())
    assert len(texts) > 30
    stopping_words = []
    for place, text in texts:
        stopping_words += [f"{place}: {match[0]}" for match in WORST.finditer(text)]
    assert stopping_words == []
