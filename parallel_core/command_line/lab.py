"""`parallel-core lab`: build an engine yourself, and have it graded."""

import shutil
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom
from shlex import quote
from textwrap import indent
from typing import Any

import click

from backends.registry import named
from parallel_core.command_line import options
from parallel_core.command_line.commands import Commands
from parallel_core.labs.grading import ENGINE, FOLDER, LABS, drawn, graded
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
    for name, one in LABS.items():
        click.echo(f"{name:12} {one.title}")


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
    heading = handout.read_text(errors="replace").partition("\n")[0] if handout.is_file() else ""
    found = next((one for one in LABS.values() if heading == f"# {one.title}"), None)
    if found is None:
        raise RequestError(f"{folder} is no lab's folder: parallel-core lab start NAME makes one")
    files.check_outputs(json_path, others=[file, handout])
    engine = named(f"{file}:{ENGINE}")
    outcomes: list[dict[str, Any]] = []
    console = terminal_console(stderr=True)
    for outcome in graded(found, engine, SystemRandom().randrange(2**32) if seed is None else seed):
        points = outcome.of if outcome.state == "passed" else 0
        console.print(
            f"{MARKS[outcome.state]} {points:3}/{outcome.of}  {outcome.what} {outcome.got}",
            soft_wrap=True,
        )
        if outcome.state == "failed" and all(one["state"] != "failed" for one in outcomes):
            program = indent(outcome.program, "    ")
            console.print(
                f"  got:      {outcome.got}\n  expected: {outcome.expected}\n\n{program}",
                soft_wrap=True,
            )
            console.print(
                f"  Its threads in a small program, over time:\n\n{drawn(found, engine)}\n",
                soft_wrap=True,
            )
        outcomes.append({**asdict(outcome), "points": points})
    total = {name: sum(outcome[name] for outcome in outcomes) for name in ("points", "of")}
    console.print(f"{total['points']} of {total['of']} points")
    files.write_json(json_path, {"schema": 1, "lab": found.title, **total, "steps": outcomes})
    ctx.exit(0 if total["points"] == total["of"] else 1)
