"""Directives for the command line: `command` and `experiment` say what click's own help and
`--explain` say.

Each experiment has a page, which is written before Sphinx looks for pages, and `experiments` lists
those of a chapter.
"""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from parallel_core.command_line import cli
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.explanation import explanation

__all__ = ["setup"]

NO_HELP = "No more than its name says."
FOLDER = "experiments"
"""Where the experiments' pages stand, beside the page that lists them; git ignores it."""


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the directives."""
    app.add_directive("command", _Command)
    app.add_directive("shared-options", _SharedOptions)
    app.add_directive("experiment", _Experiment)
    app.add_directive("experiments", _Experiments)
    app.connect("config-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(app: Sphinx, _config: Config) -> None:
    """Write each experiment's page, and delete those of experiments that are gone."""
    folder = Path(app.srcdir) / "reference" / FOLDER
    folder.mkdir(exist_ok=True)
    texts = {folder / f"{name}.md": f"```{{experiment}} {name}\n```\n" for name in EXPERIMENTS}
    for path in set(folder.glob("*.md")) - set(texts):
        path.unlink()
    for path, text in texts.items():
        # A page that is written again is read again.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class _Command(SphinxDirective):
    """A command's usage, help and options: `command` with its name, or those of a group's one."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        context = _context(*name.split())
        options = [option for option in context.command.params if isinstance(option, click.Option)]
        parts = (_usage(context), _help(context.command), _options(options, context))
        return self.parse_text_to_nodes("\n\n".join(parts))


class _SharedOptions(SphinxDirective):
    """The options that all experiments' commands have."""

    def run(self) -> list[nodes.Node]:
        name = next(iter(EXPERIMENTS))
        context = _context("run", name)
        shared = _shared()
        options = [option for option in context.command.params if option.name in shared]
        return self.parse_text_to_nodes(_options(options, context))


class _Experiments(SphinxDirective):
    """The pages of a chapter's experiments: `experiments` with its title."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        (chapter,) = self.arguments
        pages = [f"{FOLDER}/{one.name}" for one in EXPERIMENTS.values() if one.chapter == chapter]
        if not pages:
            raise self.error(f"no experiment is of the chapter {chapter!r}")
        lines = (f"## {chapter}\n", "```{toctree}", ":maxdepth: 1\n", *pages, "```")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class _Experiment(SphinxDirective):
    """An experiment's page: `experiment` with its name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (name,) = self.arguments
        return self.parse_text_to_nodes(_experiment(EXPERIMENTS[name]), allow_section_headings=True)


def _experiment(experiment: Experiment) -> str:
    context = _context("run", experiment.name)
    own = [option for option in context.command.params if option.name not in _shared()]
    told = explanation(experiment)
    paragraphs = [f"**{heading}.** " + "\n\n".join(texts) for heading, texts in told.parts]
    of = experiment.occasion
    return "\n\n".join(
        (
            f"# {experiment.name}: {experiment.question}",
            f"*{of[0].upper()}{of[1:]}.*" if of else "",
            _code(f"parallel-core run {experiment.name} --backend NAME"),
            _options(own, context),
            *paragraphs,
        )
    )


def _shared() -> set[str | None]:
    """Return the names of the options that every experiment's command has."""
    return set.intersection(
        *({option.name for option in _context("run", name).command.params} for name in EXPERIMENTS)
    )


def _context(*names: str) -> click.Context:
    """Return the context of a command by its path below `parallel-core`."""
    context = click.Context(cli, info_name="parallel-core")
    for name in names:
        assert isinstance(context.command, click.Group)
        command = context.command.get_command(context, name)
        if command is None:
            raise ValueError(f"no command is called {' '.join(names)!r}")
        context = click.Context(command, info_name=name, parent=context)
    return context


def _usage(context: click.Context) -> str:
    pieces = " ".join(context.command.collect_usage_pieces(context))
    return _code(f"{context.command_path} {pieces}")


def _help(command: click.Command) -> str:
    """Return the help as Markdown: a paragraph that click is told not to wrap is code."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        _code(paragraph[1:].strip()) if paragraph.startswith("\b") else _with_code_spans(paragraph)
        for paragraph in paragraphs
    )


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _options(options: Sequence[click.Parameter], context: click.Context) -> str:
    """Return the options as a Markdown list of definitions."""
    records = [
        record for option in options if (record := option.get_help_record(context)) is not None
    ]
    return "\n\n".join(
        f"`{spelling}`\n: {_with_code_spans(told) or NO_HELP}" for spelling, told in records
    )


def _with_code_spans(text: str) -> str:
    """Make code of the options in a help text, and of a dash that stands for standard output."""
    return re.sub(r"(?<![\w`-])(--[a-z-]+|-(?= ))", r"`\1`", text)
