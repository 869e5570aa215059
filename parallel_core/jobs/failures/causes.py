"""Which of a job's failures is the cause, and the line that says so: rank, host, what happened, what to do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from parallel_core.jobs.messages import Failed, Progress, is_rank
from parallel_core.system.subprocesses import signal_name

__all__ = ["Seen", "Verdict", "cause_of", "hang"]

KEPT_BYTES = 1 << 14
REFUSED = 2
"""The exit status of a request that cannot be met."""
KILL = 9


@dataclass
class Seen:
    """What is known of one process; times are the watch's."""

    name: str
    host: str
    last: float
    """When it last reported something."""
    arrived: bool = False
    joined: bool = False
    progress: Progress = field(default_factory=lambda: Progress(0))
    failed: Failed | None = None
    status: int | None = None
    unstartable: str | None = None
    lost: str | None = None
    """Why its agent is gone."""
    ended_at: float = math.inf
    output: bytes = b""
    errors: bytes = b""

    @property
    def is_gone(self) -> bool:
        """Whether it runs no more."""
        return math.isfinite(self.ended_at)

    @property
    def label(self) -> str:
        """Its name and its host's."""
        return f"{self.name} on {self.host}"

    def print(self, data: bytes, error: bool) -> None:
        """Keep the end of what it wrote."""
        if error:
            self.errors = (self.errors + data)[-KEPT_BYTES:]
        else:
            self.output = (self.output + data)[-KEPT_BYTES:]

    def last_line(self) -> str:
        """Return the last line that it wrote to standard error, or else to standard output."""
        for written in (self.errors, self.output):
            lines = [line.strip() for line in written.decode(errors="replace").splitlines() if line.strip()]
            if lines:
                return lines[-1].removeprefix("parallel-core: ")
        return ""


@dataclass(frozen=True)
class Verdict:
    """What has become of a job. `culprits` are the processes whose last words explain it.

    `hang`: nobody said why, so that the stacks of the ranks are wanted.
    """

    message: str
    status: int = 1
    culprits: tuple[str, ...] = ()
    hang: bool = False


def cause_of(everyone: Sequence[Seen], now: float) -> Verdict:
    """Return the cause of a failure that has been seen."""
    ranks = [seen for seen in everyone if is_rank(seen.name)]
    refused = [rank for rank in ranks if refused_by(rank)]
    abrupt = [seen for seen in everyone if ended_abruptly(seen) and seen not in refused]
    if any(not (rank.failed and rank.failed.by_others) for rank in refused):
        # Where one refuses, the others' frameworks may abort because it is gone.
        abrupt = [seen for seen in abrupt if seen.unstartable is not None or ended_from_outside(seen)]
    if abrupt:
        # Nobody kills itself by SIGKILL, and a lost agent takes its processes with it; other ends may be consequences.
        first = min(abrupt, key=lambda seen: (not ended_from_outside(seen), seen.ended_at))
        return Verdict(how_it_ended(first), culprits=(first.name,))
    own = [rank for rank in ranks if rank.failed and not rank.failed.by_others]
    if refused and all(refused_by(rank) for rank in own):
        return Verdict(why_refused(refused[0]), REFUSED, (refused[0].name,))
    if own or refused:
        return _told([*own, *(rank for rank in refused if rank not in own)])
    early = ended_early(everyone)
    if early:
        return Verdict(f"{early.label} ended {place_of(early)}, before the others", culprits=(early.name,))
    if any(rank for rank in ranks if not rank.is_gone and not rank.failed):
        return hang(everyone, now)
    return _told([rank for rank in ranks if rank.failed])


def hang(everyone: Sequence[Seen], now: float) -> Verdict:
    """Return which ranks keep the others waiting, where nothing has happened for too long."""
    ranks = [seen for seen in everyone if is_rank(seen.name)]
    running = [rank for rank in ranks if not rank.is_gone and not rank.failed]
    absent = [rank for rank in running if not rank.joined]
    # Who waits where all meet is not the one that is waited for.
    absent = [rank for rank in absent if not rank.arrived] or absent
    early = ended_early(everyone)
    if early:
        return Verdict(f"{early.label} ended {place_of(early)}, before the others", culprits=(early.name,), hang=True)
    if absent:
        since = now - min(rank.last for rank in absent)
        label = labels(absent)
        return Verdict(f"{label} {has(absent)} not joined within {since:.0f} s", culprits=names(absent), hang=True)
    fewest = min(rank.progress.exchanges for rank in running)
    slowest = [rank for rank in running if rank.progress.exchanges == fewest]
    seconds = now - max(rank.last for rank in slowest)
    counted = f"{fewest} exchange{'s' * (fewest != 1)}"
    if len(slowest) < len(running):
        most = max(rank.progress.exchanges for rank in running)
        message = (
            f"{labels(slowest)} {has(slowest)} made no progress for {seconds:.0f} s {place_of(slowest[0])}: "
            f"{counted} launched, where others have launched {most}"
        )
    elif len(running) > 1:
        message = (
            f"no rank has made progress for {seconds:.0f} s {place_of(slowest[0])}: all stopped after {counted}, so "
            "the network or the framework may be the cause"
        )
    else:
        message = f"{labels(slowest)} has made no progress for {seconds:.0f} s {place_of(slowest[0])}"
    ended = [rank for rank in ranks if rank.status == 0]
    if ended:
        message += f"; {labels(ended)} had ended by then"
    return Verdict(message, culprits=names(slowest), hang=True)


def refused_by(rank: Seen) -> bool:
    """Tell whether a rank says that the request cannot be met."""
    return rank.failed.status == REFUSED if rank.failed else rank.status == REFUSED


def why_refused(rank: Seen) -> str:
    """Return a refusal's reason, which is the same whichever rank says it."""
    return rank.failed.message if rank.failed else rank.last_line() or f"{rank.label} ended with status {REFUSED}"


def ended_abruptly(seen: Seen) -> bool:
    """Tell whether a process is gone without having said why."""
    if seen.failed:
        return False
    return bool(seen.status) or seen.unstartable is not None or seen.lost is not None


def ended_from_outside(seen: Seen) -> bool:
    """Tell whether a process's end is no consequence of what other ranks did."""
    return seen.lost is not None or seen.status == -KILL


def ended_early(everyone: Sequence[Seen]) -> Seen | None:
    """Return a process that ended in good order while the others still had need of it."""
    ranks = [seen for seen in everyone if is_rank(seen.name)]
    waiting = [rank for rank in ranks if rank.status != 0]
    if not waiting:
        return None
    most = max(rank.progress.exchanges for rank in waiting)
    # Who has launched as many exchanges as the others owes them nothing.
    gone = [rank for rank in ranks if rank.status == 0 and (not rank.joined or rank.progress.exchanges < most)]
    gone += [seen for seen in everyone if not is_rank(seen.name) and seen.status == 0]
    return min(gone, key=lambda seen: seen.ended_at, default=None)


def how_it_ended(seen: Seen) -> str:
    """Say in one line how a process ended that gave no reason."""
    if seen.unstartable is not None:
        return f"{seen.label} could not be started: {seen.unstartable}"
    if seen.lost is not None:
        return f"the agent on {seen.host} ended by itself: {seen.lost}"
    said = f"; it said last: {seen.last_line()}" if seen.last_line() else ""
    status = seen.status or 0
    if status == -KILL:
        return (
            f"{seen.label} was killed by SIGKILL {place_of(seen)}: the system may have run out of memory (see dmesg), "
            "or somebody killed it"
        )
    if status < 0:
        return f"{seen.label} was killed by {signal_name(-status)} {place_of(seen)}{said}"
    return f"{seen.label} ended with status {status} {place_of(seen)}{said or ' and without a word'}"


def place_of(seen: Seen) -> str:
    """Say what a process had done when it was last heard of."""
    if not is_rank(seen.name):
        return "while the ranks were at work"
    if seen.progress.epoch:
        return f"after epoch {seen.progress.epoch}, step {seen.progress.step}"
    if seen.progress.exchanges:
        return f"after {seen.progress.exchanges} exchange{'s' * (seen.progress.exchanges != 1)}"
    return "before its first exchange" if seen.joined else "before it had joined"


def labels(some: Sequence[Seen]) -> str:
    """Return names and hosts."""
    return ", ".join(seen.label for seen in some)


def has(some: Sequence[Seen]) -> str:
    """Return the verb."""
    return "has" if len(some) == 1 else "have"


def names(some: Sequence[Seen]) -> tuple[str, ...]:
    """Return names alone."""
    return tuple(seen.name for seen in some)


def _told(failed: Sequence[Seen]) -> Verdict:
    # What all found together, such as shapes that differ, is told once.
    reasons = [why_refused(rank) for rank in failed]
    agreed = [rank for rank, reason in zip(failed, reasons, strict=True) if reason == reasons[0]]
    return Verdict(f"{labels(agreed)}: {reasons[0]}", culprits=names(agreed))
