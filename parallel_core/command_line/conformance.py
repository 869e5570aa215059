"""`parallel-core conformance`: check backends against the protocol by random programs."""

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any, get_args

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
@options.engine
@click.option(
    "--devices",
    "wanted",
    type=options.DEVICES,
    help="Logical devices: how many, or which (cpu:1,gpu:0).  [default: 1 to 9, by the program]",
)
@options.device_kind
@options.workers
@options.variant
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
    variant: tuple[str, ...],
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
    seconds: float | None = None
    if minutes:
        seconds = 60 * minutes
    elif not limits["programs"]:
        seconds = 60
    loading: dict[str, Any] = {
        "device_kind": device_kind,
        "engine": engine,
        "workers_per_device": workers,
    }
    if variant:
        loading["variants"] = variant
    if isinstance(wanted, tuple):
        loading["devices"] = ",".join(map(str, wanted))
    devices = len(wanted) if isinstance(wanted, tuple) else wanted
    all_limits = Limits(seconds=seconds, devices=devices, **limits)
    console = terminal_console()
    if backend is not None:
        failures = _search_and_show(console, all_limits, findings, backend, loading)
        ctx.exit(1 if failures else 0)
    tried = failures = 0
    engines = (engine,) if engine else get_args(Engine)
    for name, tried_engine in product(backends.names(), engines):
        loading["engine"] = tried_engine
        try:
            failures += _search_and_show(console, all_limits, findings, name, loading)
            tried += 1
        except BackendError as error:
            show_sentence(f"{name} on {tried_engine}: skipped: {error}", console, ASIDE)
    if not tried:
        raise RequestError("no backend could be loaded")
    ctx.exit(1 if failures else 0)


def _search_and_show(
    console: Console, limits: Limits, most: int, name: str, loading: Mapping[str, Any]
) -> int:
    """Test a backend with random programs, and print those that fail; return their number.

    The search ends at `most` failures. `loading` are the arguments with which it is loaded.
    """
    arguments = {key: value for key, value in loading.items() if value not in (None, "auto", 1)}
    arguments["threads_per_device"] = 1
    side = f"{name} on {loading['engine']}" if loading["engine"] else name
    call = _call_of_load(name, arguments)
    done, elapsed, failures = 0, 0.0, 0
    with console.status(Text(side)) as status:

        def on_progress(programs: int, seconds: float) -> None:
            nonlocal done, elapsed
            done, elapsed = programs, seconds
            status.update(Text(f"{side}: {_rate(done, elapsed)}"))

        for failure in search(partial(_load, name, arguments), limits, on_progress):
            failures += 1
            console.print(f"{side} {failure.finding.what}", style="bold", soft_wrap=True)
            console.print(f"in program {failure.number} of seed {limits.seed}, shortened:\n")
            console.print(failure.text(call), soft_wrap=True)
            if failures == most:
                break
    verdict = "all equal to NumPy's"
    if failures:
        verb = "is" if failures == 1 else "are"
        verdict = f"{failures} found that {verb} not"
    show_sentence(f"{side}: {_rate(done, elapsed)}, {verdict}", console)
    return failures


def _call_of_load(name: str, arguments: Mapping[str, Any]) -> str:
    """Write the call of `load` for a program, with `{}` in place of the number of devices.

    If the arguments have names of devices, these are written instead.
    """
    devices = repr(arguments["devices"]) if "devices" in arguments else "{}"
    others = [f"{key}={value!r}" for key, value in arguments.items() if key != "devices"]
    words = ", ".join((f"devices={devices}", *others))
    return f"load({name!r}, {words})"


def _load(name: str, arguments: Mapping[str, Any], devices: int) -> Backend:
    """Load a backend on a number of devices, unless the arguments name devices."""
    return backends.load(name, **{"devices": devices, **arguments})


def _rate(programs: int, seconds: float) -> str:
    """Write a number of programs, and their number a minute."""
    a_minute = 60 * programs / max(seconds, 1)
    return f"{programs:,} programs, {a_minute:,.0f} a minute"
