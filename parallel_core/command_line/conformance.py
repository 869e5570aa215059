"""`parallel-core conformance`: check backends against the protocol by random programs."""

from functools import partial
from typing import Any, cast, get_args

import click
from rich.console import Console
from rich.text import Text

import backends
from backends import Backend, BackendError, Device, Engine
from backends.conformance import Limits, search
from parallel_core.command_line import options
from parallel_core.system.errors import RequestError
from parallel_core.terminal.console import ASIDE, terminal_console
from parallel_core.terminal.layout import show_sentence

NUMBER = click.IntRange(0, 2**32 - 1)


@click.command()
@click.option("--backend", metavar="NAME", help="A framework that `list` names.")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="All backends that can be loaded, on each of their engines.",
)
@click.option("--engine", metavar="async|sync", help="Default: async if the backend has it.")
@click.option(
    "--devices",
    "wanted",
    type=options.DEVICES,
    help="Logical devices: how many, or which (cpu:1,gpu:0).  [default: 1 to 9, by the program]",
)
@options.device_kind
@options.workers
@options.variants
@options.option("--seed", type=NUMBER, default=0, help="Which programs are drawn.")
@click.option(
    "--first", type=NUMBER, default=0, metavar="N", help="Begin with program N of the seed."
)
@click.option("--programs", type=options.POSITIVE, metavar="N", help="Stop after so many programs.")
@click.option(
    "--minutes",
    type=options.NUMBER,
    help="Stop after so long.  [default: 1, or any with --programs]",
)
@options.option(
    "--deadline",
    type=options.NUMBER,
    default="20",
    help="Seconds after which a program counts as hung.",
)
@options.option(
    "--findings", type=options.POSITIVE, default=1, help="Stop after this many findings."
)
@click.pass_context
def conformance(
    ctx: click.Context,
    /,
    backend: str | None,
    every: bool,
    engine: str | None,
    wanted: int | tuple[Device, ...] | None,
    workers: int,
    variants: tuple[str, ...],
    device_kind: str,
    minutes: float | None,
    findings: int,
    **limits: Any,
) -> None:
    """Test a backend with random programs.

    Runs them on NumPy, too, and prints a short one that differs.

    The exit status is 0 if all are equal, and 1 if one differs, hangs or crashes.
    """
    if every == (backend is not None):
        raise RequestError("conformance needs either --backend NAME or --all")
    seconds = 60 * minutes if minutes else None if limits["programs"] else 60
    names = wanted if isinstance(wanted, tuple) else ()
    chosen = Limits(
        seconds=seconds, devices=len(names) if names else cast("int | None", wanted), **limits
    )
    console = terminal_console()
    named: dict[str, Any] = {
        "device_kind": device_kind,
        "engine": engine,
        "workers_per_device": workers,
    }
    if variants:
        named["variants"] = variants
    if names:
        named["devices"] = ",".join(map(str, names))
    if backend is not None:
        ctx.exit(1 if _hold(console, chosen, findings, backend, named) else 0)
    tried = found = 0
    for name in backends.names():
        for one in (engine,) if engine else get_args(Engine):
            try:
                found += _hold(console, chosen, findings, name, {**named, "engine": one})
                tried += 1
            except BackendError as error:
                show_sentence(f"{name} on {one}: skipped: {error}", console, ASIDE)
    if not tried:
        raise RequestError("no backend could be loaded")
    ctx.exit(1 if found else 0)


def _hold(console: Console, limits: Limits, findings: int, name: str, named: dict[str, Any]) -> int:
    """Show what is found in a backend, and return how much that is."""
    arguments = {key: value for key, value in named.items() if value not in (None, "auto", 1)}
    arguments["threads_per_device"] = 1
    where = f"{name} on {named['engine']}" if named["engine"] else name
    # The program found puts in how many devices it needs.
    written = ", ".join(f"{key}={value!r}" for key, value in {"devices": "{}", **arguments}.items())
    loading = f"load({name!r}, {written})".replace("'{}'", "{}")
    done, elapsed, found = 0, 0.0, 0
    with console.status(Text(where)) as status:

        def show(programs: int, seconds: float) -> None:
            nonlocal done, elapsed
            done, elapsed = programs, seconds
            status.update(Text(f"{where}: {_rate(done, elapsed)}"))

        for one in search(partial(_load, name, arguments), limits, show):
            found += 1
            console.print(f"{where} {one.finding.what}", style="bold", soft_wrap=True)
            console.print(f"in program {one.number} of seed {limits.seed}, shortened:\n")
            console.print(one.text(loading), soft_wrap=True)
            if found == findings:
                break
    verdict = (
        f"{found} found that {'is' if found == 1 else 'are'} not"
        if found
        else "all equal to NumPy's"
    )
    show_sentence(f"{where}: {_rate(done, elapsed)}, {verdict}", console)
    return found


def _load(name: str, arguments: dict[str, Any], devices: int) -> Backend:
    return backends.load(name, **{"devices": devices, **arguments})


def _rate(programs: int, seconds: float) -> str:
    return f"{programs:,} programs, {60 * programs / max(seconds, 1):,.0f} a minute"
