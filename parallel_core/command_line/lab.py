"""`parallel-core lab`: build an engine yourself, and have it graded."""

import shutil
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom
from shlex import quote
from textwrap import indent
from typing import Any

import click
from rich.console import Console

from backends.registry import named
from parallel_core.command_line import options
from parallel_core.command_line.commands import Commands
from parallel_core.labs.grading import ENGINE, FOLDER, LABS, Lab, Outcome, drawn, graded
from parallel_core.system import files
from parallel_core.system.errors import RequestError
from parallel_core.terminal.console import terminal_console

MARKS = {"passed": "✓", "failed": "✗"}


@click.group(cls=Commands)
def lab() -> None:
    """Build an engine yourself, and have it graded."""


@lab.command("list")
def _list() -> None:
    """List the labs."""
    for name, described in LABS.items():
        click.echo(f"{name:12} {described.title}")
    click.echo(f"Begin here: parallel-core lab start {next(iter(LABS))}")


@lab.command()
@click.argument("name", type=click.Choice(list(LABS)))
@click.option(
    "--dir",
    "folder",
    type=options.PATH,
    metavar="D",
    help="A new folder. Default: named like the lab.",
)
def start(name: str, folder: Path | None) -> None:
    """Write a lab's handout and skeleton to a new folder."""
    folder = folder or Path(name)
    if folder.exists():
        raise RequestError(f"{folder} exists: choose another one by --dir")
    try:
        shutil.copytree(FOLDER / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    click.echo(
        f"Read {folder}/README.md, change {folder}/engine.py, then: parallel-core lab check "
        f"{quote(str(folder))}"
    )


@lab.command()
@click.argument("folder", type=options.PATH, default=Path())
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), help="Of the inputs. Default: fresh ones."
)
@options.json_file
@click.pass_context
def check(ctx: click.Context, folder: Path, seed: int | None, json_path: Path | None) -> None:
    """Grade the engine in a folder, step by step.

    The exit status is 0 if all steps pass, and 1 if one fails.
    """
    handout, file = folder / "README.md", folder / "engine.py"
    lab_of_folder = _lab_of(handout)
    if lab_of_folder is None:
        raise RequestError(f"{folder} is no lab's folder: parallel-core lab start NAME makes one")
    files.check_outputs(json_path, others=[file, handout])
    engine = named(f"{file}:{ENGINE}")
    if seed is None:
        seed = SystemRandom().randrange(2**32)
    steps: list[dict[str, Any]] = []
    points = most_points = 0
    has_failed = False
    console = terminal_console(stderr=True)
    for outcome in graded(lab_of_folder, engine, seed):
        passed = outcome.state == "passed"
        points_of_step = outcome.of if passed else 0
        points += points_of_step
        most_points += outcome.of
        mark = MARKS[outcome.state]
        is_first_failure = not passed and not has_failed
        line = f"{mark} {points_of_step:3}/{outcome.of}  {outcome.what}"
        if not is_first_failure:
            line = f"{line} {outcome.got}".rstrip()
        console.print(line, soft_wrap=True)
        if is_first_failure:
            has_failed = True
            _show_failure(lab_of_folder, engine, outcome, console)
        steps.append({**asdict(outcome), "points": points_of_step})
    console.print(f"{points} of {most_points} points")
    document = {"schema": 1, "lab": lab_of_folder.title, "points": points, "of": most_points}
    files.write_json(json_path, {**document, "steps": steps})
    ctx.exit(0 if points == most_points else 1)


def _lab_of(handout: Path) -> Lab | None:
    """Return the lab whose title is the heading of a handout; None if there is none."""
    if not handout.is_file():
        return None
    heading, _, _ = handout.read_text(errors="replace").partition("\n")
    for described in LABS.values():
        if heading == f"# {described.title}":
            return described
    return None


def _show_failure(described: Lab, engine: str, outcome: Outcome, console: Console) -> None:
    """Print what a failed engine gave, its program, and a timeline of its threads."""
    program = indent(outcome.program, "    ")
    console.print(
        f"  got:      {outcome.got}\n  expected: {outcome.expected}\n\n{program}",
        soft_wrap=True,
    )
    timeline = drawn(described, engine)
    console.print(
        f"  Its threads in a small program, over time:\n\n{timeline}\n",
        soft_wrap=True,
    )
