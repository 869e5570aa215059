"""When does communication dominate? Two hosts train over links of three speeds, and exchange after
or during backward.

    python -m benchmarks.training.network

The hosts are network namespaces of this machine, a core each, joined by a link whose rate `tc`
limits; that takes root, so this is not one of `make bench`. A step's time in communication is what
it takes longer than one of the same work without exchange: less than the exchange by itself if it
hides under the backward pass. Both kinds of steps are timed in turns by the processes themselves.
Memory and caches are still one machine's.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from operator import truediv

import click

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import Measured, Variant, parallel_core, take_turns
from benchmarks.harness.targets import Finding, by_round, markdown_table, scaled
from benchmarks.harness.two_hosts import TwoHosts, set_link, two_hosts
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.system.formatting import figure, percent

BACKENDS = ("mxnet", "torch")
RATES = {"10 Gbit/s": 10e9, "1 Gbit/s": 1e9, "100 Mbit/s": 1e8}
QUICK_RATES = {"1 Gbit/s": 1e9}
EXCHANGES = ("after", "during")
WIDTH, BATCH, STEPS = 1, 256, 5
STREAM = "one TCP stream"


@benchmark("training/network", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Train on two hosts over 10 Gbit/s, 1 Gbit/s and 100 Mbit/s, with gradients exchanged after or
    during backward.
    """
    rates = QUICK_RATES if quick else RATES
    processes = measured_over(rates, rounds)
    links = [
        Finding(
            f"{rate}: {STREAM}",
            median_interval(
                [
                    8e6 / one.median(f"{STREAM}, 1 MB") / 1e9
                    for one in processes[f"{STREAM}, {rate}"]
                ]
            ),
            "Gbit/s",
        )
        for rate in rates
    ]
    pairs = [
        finding
        for backend, rate in product(BACKENDS, rates)
        for finding in of_pair(cell_of(backend, rate), processes)
    ]
    title = "Training on two hosts over links of three speeds"
    return Report(title, [*links, *pairs], processes, [table_of(rates, pairs)])


def measured_over(rates: Mapping[str, float], rounds: int) -> dict[str, list[Measured]]:
    """Run one TCP stream and all trainings once a round over each rate in turn; return what each
    gave, by rounds.
    """
    processes: dict[str, list[Measured]] = {}
    with two_hosts() as hosts:
        for turn, (rate, bits_per_second) in product(range(rounds), rates.items()):
            click.echo(f"round {turn + 1} of {rounds}, {rate}", err=True)
            set_link(hosts, bits_per_second)
            commands = {f"{STREAM}, {rate}": on_both(hosts, "allreduce", "torch", "--sizes", "1MB")}
            for backend, exchange in product(BACKENDS, EXCHANGES):
                amount = ("--epochs", 1, "--limit", STEPS, "--batch-size", BATCH, "--width", WIDTH)
                job = on_both(hosts, "data-parallel", backend, *amount, "--exchange", exchange)
                commands[f"{cell_of(backend, rate)}, {exchange}"] = job
            for name, measured in take_turns(
                [Variant(*one) for one in commands.items()], 1
            ).items():
                processes.setdefault(name, []).extend(measured)
    return processes


def on_both(hosts: TwoHosts, experiment: str, backend: str, *amount: object) -> tuple[str, ...]:
    """Make the command of an experiment on the two hosts, a rank on each."""
    options = ("--backend", backend, "--device-kind", "cpu", "--threads", 1, *amount)
    return hosts.ranks(backend, *parallel_core("run", experiment, *options))


def cell_of(backend: str, rate: str) -> str:
    """Name what is varied, but for when gradients are exchanged."""
    return f"{backend}, width {WIDTH}, {rate}"


def of_pair(cell: str, processes: Mapping[str, Sequence[Measured]]) -> list[Finding]:
    """List the figures with gradients exchanged after and during the backward pass."""
    steps = [
        [one.figures["step_seconds"] for one in processes[f"{cell}, {name}"]]
        for name in ("during", "after")
    ]
    findings = [Finding(f"{cell}: a step, during / after", by_round(truediv, *steps))]
    for name in (f"{cell}, {exchange}" for exchange in EXCHANGES):
        step, exposed, alone = (
            [one.figures[figure] for one in processes[name]]
            for figure in ("step_seconds", "exposed_exchange_seconds", "exchange_seconds")
        )
        findings += [
            Finding(name, by_round(lambda seconds: BATCH / seconds, step), "images/s"),
            Finding(
                f"{name}: a step in communication", scaled(median_interval(exposed), 1e3), "ms"
            ),
            Finding(f"{name}: of its time", scaled(by_round(truediv, exposed, step), 100), "%"),
            Finding(f"{name}: the exchange by itself", scaled(median_interval(alone), 1e3), "ms"),
        ]
    return findings


def table_of(rates: Mapping[str, float], findings: Sequence[Finding]) -> str:
    """Write the one table that shows when communication dominates: a row for each link and time of
    the exchange.
    """
    found = {one.name: one.interval.estimate for one in findings}
    heads = [
        f"{backend}: {column}"
        for backend in BACKENDS
        for column in ("images/s", "a step in communication")
    ]
    rows = []
    for rate, exchange in product(rates, EXCHANGES):
        row = [rate, exchange]
        for name in (f"{cell_of(backend, rate)}, {exchange}" for backend in BACKENDS):
            milliseconds, share = (
                found[f"{name}: {part}"] for part in ("a step in communication", "of its time")
            )
            row += [figure(found[name]), f"{figure(milliseconds)} ms ({percent(share / 100)})"]
        rows.append(row)
    return (
        f"Width {WIDTH}, batch {BATCH}:\n\n{markdown_table(['link', 'exchange', *heads], rows)}\n"
    )


if __name__ == "__main__":
    main()
