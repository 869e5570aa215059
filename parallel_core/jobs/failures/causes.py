"""Which of a job's failures is the cause, and the line that names it: rank, host, what happened, what to do."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from signal import SIGKILL

from parallel_core.jobs.messages import Failed, Progress, is_rank
from parallel_core.system.subprocesses import signal_name

__all__ = ["Conclusion", "Observed", "cause_of", "hang", "without_answer"]

MAX_KEPT = 1 << 14
"""Bytes that are kept of each stream of a process."""
REFUSAL = 2
"""The exit status of a request that cannot be met."""


@dataclass
class Observed:
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
        """Whether it has ended."""
        return math.isfinite(self.ended_at)

    @property
    def label(self) -> str:
        """Its name and its host's."""
        return f"{self.name} on {self.host}"

    @property
    def refused(self) -> bool:
        """Whether it is a rank that says that the request cannot be met."""
        return is_rank(self.name) and (self.failed.status if self.failed else self.status) == REFUSAL

    @property
    def reason(self) -> str:
        """Why it failed or refused."""
        return self.failed.message if self.failed else self.last_line() or f"{self.label} ended with status {REFUSAL}"

    @property
    def ended_abruptly(self) -> bool:
        """Whether it is gone and has not said why."""
        return not self.failed and bool(self.status or self.unstartable is not None or self.lost is not None)

    @property
    def ended_from_outside(self) -> bool:
        """Whether its end cannot be a consequence of what other ranks did: no process kills itself by SIGKILL."""
        return self.lost is not None or self.status == -SIGKILL

    def print(self, data: bytes, error: bool) -> None:
        """Keep the end of what it wrote."""
        if error:
            self.errors = (self.errors + data)[-MAX_KEPT:]
        else:
            self.output = (self.output + data)[-MAX_KEPT:]

    def last_line(self) -> str:
        """Return the last line that it wrote to standard error, or else to standard output."""
        for written in (self.errors, self.output):
            lines = [line.strip() for line in written.decode(errors="replace").splitlines() if line.strip()]
            if lines:
                return lines[-1].removeprefix("parallel-core: ")
        return ""


@dataclass(frozen=True)
class Conclusion:
    """What has become of a job. `culprits` are the processes whose last words explain it.

    `hang`: no process said why, so the stacks of the ranks are wanted.
    """

    message: str
    status: int = 1
    culprits: tuple[str, ...] = ()
    hang: bool = False


def cause_of(everyone: Sequence[Observed], now: float) -> Conclusion:
    """Return the cause of a failure."""
    ranks = [one for one in everyone if is_rank(one.name)]
    refused = [rank for rank in ranks if rank.refused]
    abrupt = [one for one in everyone if one.ended_abruptly and not one.refused]
    if any(not (rank.failed and rank.failed.by_others) for rank in refused):
        # If one rank refuses, the others' frameworks may abort because it is gone.
        abrupt = [one for one in abrupt if one.unstartable is not None or one.ended_from_outside]
    if abrupt:
        # Ends that are not from outside may be consequences.
        first = min(abrupt, key=lambda one: (not one.ended_from_outside, one.ended_at))
        return Conclusion(_how_it_ended(first), culprits=(first.name,))
    own = [rank for rank in ranks if rank.failed and not rank.failed.by_others]
    if refused and all(rank.refused for rank in own):
        return Conclusion(refused[0].reason, REFUSAL, (refused[0].name,))
    if own or refused:
        return _shared_reason([*own, *(rank for rank in refused if rank not in own)])
    if (early := _ended_early(everyone)) is not None:
        return early
    if any(not rank.is_gone and not rank.failed for rank in ranks):
        return hang(everyone, now)
    return _shared_reason([rank for rank in ranks if rank.failed])


def hang(everyone: Sequence[Observed], now: float) -> Conclusion:
    """Return which ranks keep the others waiting, after nothing has happened for too long."""
    if (early := _ended_early(everyone)) is not None:
        return Conclusion(early.message, culprits=early.culprits, hang=True)
    ranks = [one for one in everyone if is_rank(one.name)]
    running = [rank for rank in ranks if not rank.is_gone and not rank.failed]
    absent = [rank for rank in running if not rank.joined]
    # A rank that has arrived waits for one that has not.
    absent = [rank for rank in absent if not rank.arrived] or absent
    if absent:
        seconds = now - min(rank.last for rank in absent)
        return Conclusion(
            f"{_subject(absent)} not joined within {seconds:.0f} s", culprits=_process_names(absent), hang=True
        )
    launched = [rank.progress.exchanges for rank in running]
    slowest = [rank for rank in running if rank.progress.exchanges == min(launched)]
    since = f"for {now - max(rank.last for rank in slowest):.0f} s {_last_step(slowest[0])}"
    exchanges = f"{min(launched)} exchange{'s' * (min(launched) != 1)}"
    if len(slowest) < len(running):
        others = f"{exchanges} launched, while others have launched {max(launched)}"
        message = f"{_subject(slowest)} made no progress {since}: {others}"
    elif len(running) > 1:
        message = (
            f"no rank has made progress {since}: all stopped after {exchanges}, so the network or the framework may be "
            "the cause"
        )
    else:
        message = f"{_subject(slowest)} made no progress {since}"
    ended = [rank for rank in ranks if rank.status == 0]
    if ended:
        message += f"; {_labels(ended)} had ended by then"
    return Conclusion(message, culprits=_process_names(slowest), hang=True)


def without_answer(silent: Sequence[Observed], now: float) -> Conclusion:
    """Return that ranks, of which all were asked for their stacks, gave none: what the others wait for is there."""
    since = f"for {now - max(rank.last for rank in silent):.0f} s {_last_step(silent[0])}"
    return Conclusion(f"{_subject(silent)} not answered {since}", culprits=_process_names(silent), hang=True)


def _ended_early(everyone: Sequence[Observed]) -> Conclusion | None:
    """Return that a process ended in good order while the others still needed it; None if none did."""
    waiting = [one.progress.exchanges for one in everyone if is_rank(one.name) and one.status != 0]
    if not waiting:
        return None
    # The others do not wait for a rank that has launched as many exchanges as they have.
    needed = [
        one
        for one in everyone
        if one.status == 0 and (not is_rank(one.name) or not one.joined or one.progress.exchanges < max(waiting))
    ]
    if not needed:
        return None
    first = min(needed, key=lambda one: one.ended_at)
    return Conclusion(f"{first.label} ended {_last_step(first)}, before the others", culprits=(first.name,))


def _how_it_ended(process: Observed) -> str:
    if process.unstartable is not None:
        return f"{process.label} could not be started: {process.unstartable}"
    if process.lost is not None:
        return f"the agent on {process.host} ended by itself: {process.lost}"
    last_words = f"; it said last: {process.last_line()}" if process.last_line() else ""
    status = process.status or 0
    if status == -SIGKILL:
        return (
            f"{process.label} was killed by SIGKILL {_last_step(process)}: the system may have run out of memory "
            "(see dmesg), or somebody killed it"
        )
    if status < 0:
        return f"{process.label} was killed by {signal_name(-status)} {_last_step(process)}{last_words}"
    return f"{process.label} ended with status {status} {_last_step(process)}{last_words or ' and without a word'}"


def _last_step(process: Observed) -> str:
    if not is_rank(process.name):
        return "while the ranks were at work"
    progress = process.progress
    if progress.epoch:
        return f"after epoch {progress.epoch}, step {progress.step}"
    if progress.exchanges:
        return f"after {progress.exchanges} exchange{'s' * (progress.exchanges != 1)}"
    return "before its first exchange" if process.joined else "before it had joined"


def _shared_reason(failed: Sequence[Observed]) -> Conclusion:
    """Return the first reason once, with all ranks that give it: shapes that differ fail in every rank."""
    agreed = [rank for rank in failed if rank.reason == failed[0].reason]
    return Conclusion(f"{_labels(agreed)}: {failed[0].reason}", culprits=_process_names(agreed))


def _subject(processes: Sequence[Observed]) -> str:
    return f"{_labels(processes)} {'has' if len(processes) == 1 else 'have'}"


def _labels(processes: Sequence[Observed]) -> str:
    return ", ".join(one.label for one in processes)


def _process_names(processes: Sequence[Observed]) -> tuple[str, ...]:
    return tuple(one.name for one in processes)
