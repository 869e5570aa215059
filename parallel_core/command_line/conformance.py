"""`parallel-core conformance`: hold a backend to the protocol by random programs."""

from functools import partial
from typing import Any

import click
from rich.console import Console

import backends
from backends.conformance import Limits, search
from parallel_core.command_line import options

__all__ = ["conformance"]


@click.command()
@click.option("--backend", required=True, metavar="NAME", help="mxnet, torch, numpy, or one of a plug-in.")
@click.option("--engine", metavar="async|sync", help="Default: async if the backend has it.")
@click.option("--devices", type=options.POSITIVE, help="Logical devices.  [default: 1 to 9, by the program]")
@options.device_kind
@options.workers
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which programs are drawn.")
@click.option("--minutes", type=options.NUMBER, help="Stop after so long.  [default: 1, or none with --programs]")
@click.option("--programs", type=options.POSITIVE, metavar="N", help="Stop after so many programs.")
@click.option("--first", type=click.IntRange(min=0), default=0, help="Begin with this program of the seed.")
@click.option(
    "--deadline", type=options.NUMBER, default="20", show_default=True, help="Seconds after which a program hangs."
)
@click.option("--findings", type=options.POSITIVE, default=1, show_default=True, help="Stop after so many.")
@click.pass_context
def conformance(
    ctx: click.Context,
    /,
    backend: str,
    engine: str | None,
    device_kind: str,
    workers: int,
    minutes: float | None,
    findings: int,
    **limits: Any,
) -> None:
    """Run random programs on a backend and on NumPy, and print a short one that differs.

    The exit status is 0 if all are equal, and 1 if one differs, hangs or crashes.
    """
    console = Console(highlight=False)
    named: dict[str, Any] = {
        "device_kind": device_kind,
        "engine": engine,
        "threads_per_device": 1,
        "workers_per_device": workers,
    }
    load = partial(backends.load, backend, **named)
    seconds = 60 * minutes if minutes else None if limits["programs"] else 60
    done = 0
    found = 0
    with console.status("starting") as status:

        def show(programs: int, elapsed: float) -> None:
            nonlocal done
            done = programs
            status.update(f"{done:,} programs, {done / max(elapsed, 1) * 60:,.0f} a minute")

        for one in search(load, Limits(seconds=seconds, **limits), show):
            finding = one.finding
            console.print(f"{backend} {finding.what}", style="bold", markup=False)
            console.print(f"In program {one.number} of seed {limits['seed']}, shortened:\n")
            arguments = [repr(backend), str(one.program.devices)]
            arguments += [f"{name}={value!r}" for name, value in named.items() if value not in (None, "auto")]
            remarks = {} if finding.place is None else {finding.place: finding.what}
            click.echo(one.program.text(f"load({', '.join(arguments)})", remarks))
            click.echo(finding.stacks)
            if (found := found + 1) == findings:
                break
    console.print(f"{done:,} programs, {'all equal' if not found else f'{found} findings'}")
    ctx.exit(1 if found else 0)
