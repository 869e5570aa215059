"""When does communication dominate? Two hosts train over links of three speeds, and exchange after or during backward.

    python -m benchmarks.training.network

The hosts are network namespaces of this machine, a core each, joined by a link whose rate `tc` limits; that takes root,
so this is not one of `make bench`. A step's time in communication is what it takes longer than one of the same work
without exchange: less than the exchange by itself if it hides under the backward pass. Both
kinds of steps are timed in turns by the processes themselves. Memory and caches are still one machine's.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import click

from benchmarks.harness.findings import Finding, Report, benchmark
from benchmarks.harness.side_by_side import Measured, Variant, ratio_by_round, scaled, take_turns, worker
from benchmarks.harness.two_hosts import NoHostsError, TwoHosts, set_link, two_hosts
from parallel_core.measurement.confidence_intervals import Interval, median_interval
from parallel_core.system.formatting import figure

BACKENDS = ("mxnet", "torch")
RATES = {"10 Gbit/s": 10e9, "1 Gbit/s": 1e9, "100 Mbit/s": 1e8}
EXCHANGES = ("after", "during")
# Width of the network: batch and steps.
WIDTHS = {1: (256, 5)}
QUICK_RATES = {"1 Gbit/s": 1e9}
QUICK_WIDTHS = (1,)
STREAM_BYTES = 1_000_000


@dataclass(frozen=True)
class Cell:
    """What is varied, the link's rate in words."""

    backend: str
    width: int
    rate: str
    exchange: str

    @property
    def name(self) -> str:
        """What it is called in tables and files."""
        return f"{self.backend}, width {self.width}, {self.rate}, {self.exchange}"


@benchmark("training/network", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Train on two hosts over 10 Gbit/s, 1 Gbit/s and 100 Mbit/s, with gradients exchanged after or during backward."""
    rates, widths = (QUICK_RATES, QUICK_WIDTHS) if quick else (RATES, tuple(WIDTHS))
    try:
        processes = measured_over(rates, widths, rounds)
    except NoHostsError as error:
        raise click.ClickException(str(error)) from error
    findings = [
        *(of_link(rate, processes[stream_name(rate)]) for rate in rates),
        *(
            finding
            for backend, width, rate in product(BACKENDS, widths, rates)
            for finding in of_pair(backend, width, rate, processes)
        ),
    ]
    tables = [table_of(width, list(rates), processes) for width in widths]
    return Report("Training on two hosts over links of three speeds", findings, processes, tables)


def measured_over(rates: Mapping[str, float], widths: Sequence[int], rounds: int) -> dict[str, list[Measured]]:
    """Run all variants once a round over each rate in turn; return what each gave, round by round."""
    processes: dict[str, list[Measured]] = {}
    with two_hosts() as hosts:
        for turn, (rate, bits_per_second) in product(range(rounds), rates.items()):
            click.echo(f"round {turn + 1} of {rounds}, {rate}", err=True)
            set_link(hosts, bits_per_second)
            for name, measured in take_turns(variants(hosts, rate, widths), 1).items():
                processes.setdefault(name, []).extend(measured)
    return processes


def variants(hosts: TwoHosts, rate: str, widths: Sequence[int]) -> list[Variant]:
    """Make the commands for one rate: one TCP stream, and all trainings."""
    stream = worker("tcp_stream", sizes=[STREAM_BYTES], address=hosts.names[0], shell=hosts.on(1))
    return [
        Variant(stream_name(rate), (*hosts.on(0), *stream)),
        *(
            Variant(Cell(backend, width, rate, exchange).name, training(hosts, backend, width, exchange))
            for width, backend, exchange in product(widths, BACKENDS, EXCHANGES)
        ),
    ]


def training(hosts: TwoHosts, backend: str, width: int, exchange: str) -> tuple[str, ...]:
    """Make the command of a training on the two hosts, a rank on each."""
    batch, steps = WIDTHS[width]
    amount = ("--epochs", 1, "--limit", steps, "--batch-size", batch, "--width", width, "--exchange", exchange)
    options = ("--backend", backend, "--device-kind", "cpu", "--threads", 1, *amount, "--json", "-")
    program = (sys.executable, "-P", "-m", "parallel_core", "run", "data-parallel")
    return hosts.ranks(backend, *program, *map(str, options))


def stream_name(rate: str) -> str:
    """Name the measurement of one TCP stream."""
    return f"one TCP stream, {rate}"


def of_link(rate: str, measured: Sequence[Measured]) -> Finding:
    """Say what one TCP stream carries over a link."""
    bits = [8 * STREAM_BYTES / one.median(f"stream there, {STREAM_BYTES} B") / 1e9 for one in measured]
    return Finding(f"{rate}: one TCP stream", median_interval(bits), "Gbit/s")


def of_pair(backend: str, width: int, rate: str, processes: Mapping[str, Sequence[Measured]]) -> list[Finding]:
    """List the figures with gradients exchanged after and during the backward pass."""
    after, during = (processes[Cell(backend, width, rate, exchange).name] for exchange in EXCHANGES)
    cell = f"{backend}, width {width}, {rate}"
    steps = [[one.figures["step_seconds"] for one in measured] for measured in (during, after)]
    return [
        Finding(f"{cell}: a step, during / after", ratio_by_round(*steps)),
        *(
            finding
            for exchange, measured in zip(EXCHANGES, (after, during), strict=True)
            for finding in (
                Finding(f"{cell}, {exchange}", images(width, measured), "images/s"),
                Finding(f"{cell}, {exchange}: a step in communication", scaled(exposed(measured), 1e3), "ms"),
                Finding(f"{cell}, {exchange}: of its time", scaled(share(measured), 100), "%"),
                Finding(f"{cell}, {exchange}: the exchange by itself", scaled(alone(measured), 1e3), "ms"),
            )
        ),
    ]


def images(width: int, measured: Sequence[Measured]) -> Interval:
    """Return the images a second of both hosts together."""
    return median_interval([WIDTHS[width][0] / one.figures["step_seconds"] for one in measured])


def exposed(measured: Sequence[Measured]) -> Interval:
    """Return the seconds by which a step takes longer than without exchange."""
    return median_interval([one.figures["exposed_exchange_seconds"] for one in measured])


def share(measured: Sequence[Measured]) -> Interval:
    """Return these as a share of the step."""
    return median_interval([one.figures["exposed_exchange_seconds"] / one.figures["step_seconds"] for one in measured])


def alone(measured: Sequence[Measured]) -> Interval:
    """Return the seconds that a step's exchange takes by itself."""
    return median_interval([one.figures["exchange_seconds"] for one in measured])


def table_of(width: int, rates: Sequence[str], processes: Mapping[str, Sequence[Measured]]) -> str:
    """Write the one table that shows when communication dominates: a row for each link and time of the exchange."""
    heads = [f"{backend}: {column}" for backend in BACKENDS for column in ("images/s", "a step in communication")]
    lines = [
        f"Width {width}, batch {WIDTHS[width][0]}:",
        "",
        f"| link | exchange | {' | '.join(heads)} |",
        "| --- " * (2 + len(heads)) + "|",
    ]
    for rate, exchange in product(rates, EXCHANGES):
        cells = []
        for backend in BACKENDS:
            measured = processes[Cell(backend, width, rate, exchange).name]
            cells.append(figure(images(width, measured).estimate))
            cells.append(f"{figure(1e3 * exposed(measured).estimate)} ms ({share(measured).estimate:.0%})")
        lines.append(f"| {rate} | {exchange} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
