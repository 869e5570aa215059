"""When does communication dominate? Two hosts train over links of three speeds, and exchange after
or during backward.

The hosts are network namespaces of this machine, a core each, joined by a link whose rate `tc`
limits; that takes root. A step's time in communication is what it takes longer than one of the same
work without exchange: less than the exchange by itself if it hides under the backward pass. Both
kinds of steps are timed in turns by the processes themselves. Memory and caches are still one
machine's.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import truediv

import click

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    medians_of,
    parallel_core,
    take_turns,
    values_of,
)
from benchmarks.harness.targets import Finding, by_round, markdown_table, scaled
from benchmarks.harness.two_hosts import TwoHosts, set_link, two_hosts
from parallel_core.measurement.confidence_intervals import median_interval
from parallel_core.system.formatting import figure, percent

BACKENDS = ("mxnet", "torch")
RATES = {"10 Gbit/s": 10e9, "1 Gbit/s": 1e9, "100 Mbit/s": 1e8}
QUICK_RATES = {"1 Gbit/s": 1e9}
EXCHANGES = ("after", "during")
WIDTH, BATCH, STEPS = 1, 256, 5
AMOUNT = ("--epochs", 1, "--limit", STEPS, "--batch-size", BATCH, "--width", WIDTH)
STREAM = "one TCP stream"
BITS = 8e6
"""What the timed stream carries."""


def measure(request: Request) -> Iterator[Report]:
    """Train on two hosts over each rate, with gradients exchanged after or during backward."""
    rates = QUICK_RATES if request.quick else RATES
    processes = measured_over(rates, request.rounds)
    findings = []
    for rate in rates:
        seconds = medians_of(processes[f"{STREAM}, {rate}"], f"{STREAM}, 1 MB")
        gigabits = median_interval([BITS / taken / 1e9 for taken in seconds])
        findings.append(Finding(f"{rate}: {STREAM}", gigabits, "Gbit/s"))
    for backend in BACKENDS:
        for rate in rates:
            findings += findings_of(cell_of(backend, rate), processes)
    yield Report(findings, processes, notes=[table_of(rates, findings)])


def measured_over(rates: Mapping[str, float], rounds: int) -> dict[str, list[Measured]]:
    """Run one TCP stream and all trainings once a round over each rate in turn; return what each
    gave, by rounds.
    """
    processes: dict[str, list[Measured]] = {}
    with two_hosts() as hosts:
        for number in range(rounds):
            for rate, bits_per_second in rates.items():
                click.echo(f"round {number + 1} of {rounds}, {rate}", err=True)
                set_link(hosts, bits_per_second)
                for name, measured in take_turns(variants(hosts, rate), 1).items():
                    processes.setdefault(name, []).extend(measured)
    return processes


def variants(hosts: TwoHosts, rate: str) -> list[Variant]:
    """Make the commands of the stream and of all trainings over a rate."""
    stream = on_both(hosts, "allreduce", "torch", "--sizes", "1MB")
    made = [Variant(f"{STREAM}, {rate}", stream)]
    for backend in BACKENDS:
        for exchange in EXCHANGES:
            command = on_both(hosts, "data-parallel", backend, *AMOUNT, "--exchange", exchange)
            made.append(Variant(f"{cell_of(backend, rate)}, {exchange}", command))
    return made


def on_both(hosts: TwoHosts, experiment: str, backend: str, *amount: object) -> tuple[str, ...]:
    """Make the command of an experiment on the two hosts, a rank on each."""
    options = ("--backend", backend, "--device-kind", "cpu", "--threads", 1, *amount)
    return hosts.ranks(backend, *parallel_core("run", experiment, *options))


def cell_of(backend: str, rate: str) -> str:
    """Name what is varied, but for when gradients are exchanged."""
    return f"{backend}, width {WIDTH}, {rate}"


def findings_of(cell: str, processes: Mapping[str, Sequence[Measured]]) -> list[Finding]:
    """List the figures with gradients exchanged after and during the backward pass."""
    steps = {name: values_of(processes[f"{cell}, {name}"], "step_seconds") for name in EXCHANGES}
    ratio = by_round(truediv, steps["during"], steps["after"])
    findings = [Finding(f"{cell}: a step, during / after", ratio)]
    for exchange, step in steps.items():
        name = f"{cell}, {exchange}"
        exposed = values_of(processes[name], "exposed_exchange_seconds")
        alone = values_of(processes[name], "exchange_seconds")
        rate = median_interval([BATCH / seconds for seconds in step])
        communication = scaled(median_interval(exposed), 1e3)
        share = scaled(by_round(truediv, exposed, step), 100)
        findings += [
            Finding(name, rate, "images/s"),
            Finding(f"{name}: a step in communication", communication, "ms"),
            Finding(f"{name}: of its time", share, "%"),
            Finding(f"{name}: the exchange by itself", scaled(median_interval(alone), 1e3), "ms"),
        ]
    return findings


def table_of(rates: Mapping[str, float], findings: Sequence[Finding]) -> str:
    """Write the one table that shows when communication dominates: a row for each link and time of
    the exchange.
    """
    estimates = {finding.name: finding.interval.estimate for finding in findings}
    headings = ["link", "exchange"]
    for backend in BACKENDS:
        headings += [f"{backend}: images/s", f"{backend}: a step in communication"]
    rows = []
    for rate in rates:
        for exchange in EXCHANGES:
            row = [rate, exchange]
            for backend in BACKENDS:
                name = f"{cell_of(backend, rate)}, {exchange}"
                milliseconds = figure(estimates[f"{name}: a step in communication"])
                share = percent(estimates[f"{name}: of its time"] / 100)
                row += [figure(estimates[name]), f"{milliseconds} ms ({share})"]
            rows.append(row)
    return f"Width {WIDTH}, batch {BATCH}:\n\n{markdown_table(headings, rows)}\n"


MEASUREMENT = Measurement(
    file="training/network",
    title="Training on two hosts over links of three speeds",
    question="When does communication dominate the training of two hosts?",
    method=Method(1, "2026-11-21", "steps with and without exchange in turns, in one process"),
    measure=measure,
)
