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


def _commands() -> Iterator[tuple[str, str]]:
    for names, command in commands():
        path = " ".join(("parallel-core", *names))
        yield path, command.help or ""
        yield from (
            (f"{path} {one.name}", getattr(one, "help", None) or "") for one in command.params
        )


def _measured() -> Iterator[tuple[str, str]]:
    for name, experiment in EXPERIMENTS.items():
        yield (
            f"{name} --explain",
            inspect.getdoc(import_module(experiment.program.__module__)) or "",
        )
        for metric in experiment.metrics:
            yield (
                f"{name} {metric.name}",
                " ".join((metric.means, *(band.says for band in metric.bands))),
            )


def _messages() -> Iterator[tuple[str, str]]:
    for path in tracked("backends", "parallel_core", suffix=".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise):
                texts = [str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant)]
                yield f"{path.relative_to(ROOT)}:{node.lineno}", " ".join(texts)


def _pages() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "README.md", *tracked("docs", suffix=".md")):
        # What is no prose leaves its lines.
        prose = NOT_PROSE.sub(lambda found: "\n" * found[0].count("\n"), path.read_text())
        yield from (
            (f"{path.relative_to(ROOT)}:{number}", line)
            for number, line in enumerate(prose.split("\n"), 1)
        )


@pytest.mark.parametrize("source", [_commands, _measured, _messages, _pages])
def test_no_word_that_stopped_a_reader(source: Callable[[], Iterator[tuple[str, str]]]) -> None:
    texts = [*source()]
    assert len(texts) > 30
    assert [f"{place}: {hit[0]}" for place, text in texts for hit in WORST.finditer(text)] == []
