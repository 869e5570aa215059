"""How often recordings of one program are called different, planted changes are named, and a limit
is judged wrongly.

    python -m benchmarks recordings
    python -m benchmarks recordings --spinning 1

Each round records every program once, by `parallel-core profile`, so that they meet the same
machine. Recordings are kept, and a second call makes those that are missing. Of one program all
pairs are compared, and triples that are drawn; of a planted change, triples with and without it,
in both directions.
"""

import json
import operator
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

import click
import numpy as np

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.runs import spinning
from benchmarks.harness.targets import Finding, Target, share
from parallel_core.compare.environments import python_with
from parallel_core.traces.account import PARTS
from parallel_core.traces.profile.changes import changes_between
from parallel_core.traces.profile.recorded_steps import RecordedSteps, read_recording

EXAMPLES = Path(__file__).parents[2] / "tests" / "parallel_core" / "traces" / "profile" / "examples"
STEPS, RECORDED = "18", "10"
"""How many steps a program takes, and how many of them are recorded."""
SIDE, DRAWS, DRAWS_OF_CHANGE = 3, 100, 10
"""How many recordings a side has where it is drawn, and how often that is."""
EARLY = "exchanges launched before the pass is over >= 50 %"
ANSWERED = (0, 1, 3)
"""The exit statuses of `profile --require` where the program ended well."""
SAID = "profile.json"
DIFFERENT = ("faster", "slower")
COMPUTE, EXCHANGE, _, IDLE = PARTS


@dataclass(frozen=True)
class Program:
    """A program of the tests' examples, and how often it is recorded beside how many spinning
    processes.
    """

    file: str
    arguments: tuple[str, ...]
    recordings: Mapping[int, int]
    framework: str = "torch"
    limit: str = ""
    """What `--require` asks of it."""

    @property
    def command(self) -> list[str]:
        """How it is called."""
        return [python_with(self.framework), str(EXAMPLES / self.file), *self.arguments]


def trains(recordings: int, *arguments: str) -> Program:
    """Return a program that exchanges gradients itself, if it has two ranks."""
    options = ("--steps", STEPS, *arguments)
    return Program("changed_torch.py", options, {0: recordings, 1: recordings})


def trains_with_ddp(beside_one: int, *arguments: str) -> Program:
    """Return a program that trains with DistributedDataParallel over gloo, on two ranks."""
    options = ("--fork", "--steps", STEPS, *arguments)
    return Program("ddp_torch.py", options, {0: 30, 1: beside_one, 2: 30}, limit=EARLY)


ALIKE, CHANGED = 20, 10
"""How often a program is recorded that is compared with itself, and one with a change."""
LOOP, LATE, RANKS = "loop of PyTorch", "exchange after the pass", "two ranks"
DDP, ONE_BUCKET = "DDP over gloo", "DDP with one bucket"
PROGRAMS: Mapping[str, Program] = {
    LOOP: trains(ALIKE, "--ranks", "1"),
    DDP: trains_with_ddp(ALIKE),
    "KVStore of MXNet": Program("kvstore_mxnet.py", (STEPS,), {0: ALIKE, 1: ALIKE}, "mxnet"),
    "loop of JAX": Program("plain_jax.py", (STEPS,), {0: ALIKE, 1: ALIKE}, "jax"),
    ONE_BUCKET: trains_with_ddp(0, "--bucket-cap-mb", "100"),
    RANKS: trains(CHANGED),
    LATE: trains(CHANGED, "--late"),
    "half the bytes": trains(CHANGED, "--late", "--half"),
    "one rank 20 % slower": trains(CHANGED, "--slow-rank"),
    "one product in six more": trains(CHANGED, "--ranks", "1", "--more-products", "1"),
    "a loader that waits": trains(CHANGED, "--ranks", "1", "--pause", "0.01"),
}
ALIKE_PROGRAMS = [name for name, program in PROGRAMS.items() if program.recordings[1] == ALIKE]
CHANGES: Mapping[str, tuple[str, str, str]] = {
    LATE: (RANKS, EXCHANGE, "exchange"),
    "half the bytes": (LATE, EXCHANGE, ""),
    "one rank 20 % slower": (RANKS, COMPUTE, ""),
    "one product in six more": (LOOP, COMPUTE, "compute"),
    "a loader that waits": (LOOP, IDLE, ""),
}
"""What each changed program is compared with, and what is to be named first: a part of a step, and
what kind of operation by count.
"""
RIGHT: Mapping[str, str] = {DDP: "holds", ONE_BUCKET: "broken"}
"""What is to be said of the limit."""

Pool: TypeAlias = list[RecordedSteps]
"""The recordings of a program."""


def measure(request: Request, folder: str, spinners: int) -> Iterator[Report]:
    """Record what is missing beside so many spinning processes, and judge all that is there;
    findings beside other numbers of them stay.
    """
    numbers = {name: program.recordings.get(spinners, 0) for name, program in PROGRAMS.items()}
    if request.quick:
        numbers = {LOOP: 2}
    recorded: dict[str, list[Path]] = {name: [] for name in numbers}
    with spinning(spinners):
        for number in range(max(numbers.values())):
            for name in numbers:
                if number < numbers[name]:
                    place = Path(
                        folder, f"{spinners}-spinning", name.replace(" ", "-"), str(number)
                    )
                    recorded[name].append(record(PROGRAMS[name], place))
            click.echo(f"round {number + 1} of {max(numbers.values())}", err=True)
    pools = {name: [*map(read_recording, places)] for name, places in recorded.items()}
    findings = [*called_different(pools), *named_first(pools), *judged(recorded)]
    found = dict(request.stored.get("found", {}))
    found[str(spinners)] = [
        replace(finding, name=f"{finding.name}, {spinners} spinning").as_json()
        for finding in findings
    ]
    all_findings = [Finding.from_json(finding) for load in sorted(found) for finding in found[load]]
    yield Report(all_findings, data={"found": found})


def record(program: Program, place: Path) -> Path:
    """Record a program unless that is done; return the folder of its traces, beside which lies what
    `profile` said.
    """
    if not (place / SAID).exists():
        place.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "parallel_core", "profile", "--steps", RECORDED]
        command += ["--output", str(place), "--json", str(place / SAID)]
        if program.limit:
            command += ["--require", program.limit]
        done = subprocess.run([*command, "--", *program.command], capture_output=True, text=True)
        if done.returncode not in ANSWERED:
            raise click.ClickException(done.stderr)
    (recording,) = place.glob("profile-*")
    return recording


def called_different(pools: Mapping[str, Pool]) -> Iterator[Finding]:
    """Count the pairs, and the triples that are drawn, which are called different though they are
    of one program: by time, and by count.
    """
    generator = np.random.default_rng(0)
    for name in ALIKE_PROGRAMS:
        pool = pools.get(name, [])[:ALIKE]
        pairs = [([before], [after]) for before, after in combinations(pool, 2)]
        triples = [drawn(pool, pool, generator) for _ in range(DRAWS) if len(pool) >= 2 * SIDE]
        for sides, in_words in ((pairs, "pairs"), (triples, "triples")):
            changes = [changes_between(*both) for both in sides]
            by_time = sum(
                change.verdict in DIFFERENT or bool(change.certain_parts) for change in changes
            )
            by_count = sum(bool(change.counted) for change in changes)
            for how, different in (("time", by_time), ("count", by_count)):
                if changes:
                    title = f"{name}: of {len(changes)} {in_words} called different by {how}"
                    yield Finding(title, share(different, len(changes)), "%", Target("at most", 5))


def drawn(before: Pool, after: Pool, generator: np.random.Generator) -> tuple[Pool, Pool]:
    """Draw the recordings of both sides, of one pool or of two; none is on both sides."""
    numbers = generator.permutation(len(before))
    of_after = numbers[SIDE:] if after is before else generator.permutation(len(after))
    return [before[number] for number in numbers[:SIDE]], [after[n] for n in of_after[:SIDE]]


def named_first(pools: Mapping[str, Pool]) -> Iterator[Finding]:
    """Count the draws in which a change is named first in both directions: by time, and by time or
    count.
    """
    generator = np.random.default_rng(0)
    for name, (usual, part, kind) in CHANGES.items():
        changed, unchanged = pools.get(name, []), pools.get(usual, [])
        if min(len(changed), len(unchanged)) < SIDE:
            continue
        by_time = by_either = 0
        for _ in range(DRAWS_OF_CHANGE):
            before, after = drawn(unchanged, changed, generator)
            both_ways = changes_between(before, after), changes_between(after, before)
            is_timed = [
                [first.name for first in changes.certain_parts[:1]] == [part]
                for changes in both_ways
            ]
            is_counted = [
                [first.kind for first in changes.counted[:1]] == [kind] for changes in both_ways
            ]
            by_time += all(is_timed)
            by_either += all(map(operator.or_, is_timed, is_counted))
        title = f"{name}: of {DRAWS_OF_CHANGE} triples named first"
        yield Finding(f"{title} by time", share(by_time, DRAWS_OF_CHANGE), "%")
        either = share(by_either, DRAWS_OF_CHANGE)
        yield Finding(f"{title} by time or count", either, "%", Target("at least", 90))


def judged(recorded: Mapping[str, Sequence[Path]]) -> Iterator[Finding]:
    """Count what was said of a limit that holds, or that is broken."""
    for name, right in RIGHT.items():
        verdicts = []
        for recording in recorded.get(name, ()):
            said = json.loads((recording.parent / SAID).read_text())
            verdicts += [requirement["verdict"] for requirement in said["requirements"]]
        total = len(verdicts)
        wrong = total - verdicts.count(right) - verdicts.count("open")
        if total:
            of = f"{name}: of {total} limits"
            yield Finding(f"{of} judged wrongly", share(wrong, total), "%", Target("at most", 5))
            is_open = share(verdicts.count("open"), total)
            yield Finding(f"{of} left open", is_open, "%", Target("at most", 10))


MEASUREMENT = Measurement(
    file="trust/recordings",
    title="Recordings compared, and held to a limit",
    question="How often are recordings of one program called different, and changes named?",
    method=Method(1, "2026-11-29", "all pairs, and triples drawn from recordings made in turn"),
    measure=measure,
    rounds=1,
    options=[
        click.option("--spinning", "spinners", type=click.IntRange(0, 64), default=0),
        click.option(
            "--recordings",
            "folder",
            type=click.Path(file_okay=False),
            default="runs/recordings",
            show_default=True,
            help="Where recordings are kept.",
        ),
    ],
)
