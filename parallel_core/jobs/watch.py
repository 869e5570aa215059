"""Decide what has become of a job from what its processes do, and when: a pure computation, without clock or processes.

The first failure is seldom the cause: if one rank is killed, complaints of other ranks may come before the news of it.
So the conclusion waits for a moment, and then one line names the process that explains the rest.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from signal import SIGKILL
from typing import final

from parallel_core.jobs.job import Arrived, Ended, Failed, News, Printed, Progress, is_rank
from parallel_core.system.errors import REFUSED
from parallel_core.system.subprocesses import signal_name

LATE_NEWS_SECONDS = 1.0
"""How long after the first failure other processes may report theirs."""
MAX_KEPT = 1 << 14
"""Bytes that are kept of what a process writes to standard error."""


@dataclass(frozen=True)
class Conclusion:
    """What has become of a job. `culprits` are the processes whose last words explain it.

    `hang`: no process said why, so the stacks of the ranks are wanted.
    """

    message: str
    status: int = 1
    culprits: tuple[str, ...] = ()
    hang: bool = False


@dataclass
class Observed:
    """What is known of one process."""

    name: str
    last: float
    """When it last reported something."""
    arrived: bool = False
    joined: bool = False
    exchanges: int = 0
    epoch: int = 0
    step: int = 0
    failed: Failed | None = None
    status: int | None = None
    ended_at: float = math.inf
    errors: bytes = b""
    """The end of what it wrote to standard error."""

    @property
    def refused(self) -> bool:
        """Whether it is a rank that says that the request cannot be met."""
        return is_rank(self.name) and (self.failed.status if self.failed else self.status) == REFUSED

    @property
    def last_line(self) -> str:
        """The last line that it wrote to standard error, without our prefix."""
        lines = [line.strip() for line in self.errors.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].removeprefix("parallel-core: ") if lines else ""

    @property
    def reason(self) -> str:
        """Why it failed or refused."""
        return self.failed.message if self.failed else self.last_line or self.end

    @property
    def after(self) -> str:
        """How far it was."""
        if not is_rank(self.name):
            return "while the ranks were at work"
        if self.epoch:
            return f"after epoch {self.epoch}, step {self.step}"
        if self.exchanges:
            return f"after exchange {self.exchanges}"
        return "before its first exchange" if self.joined else "before it had joined"

    @property
    def end(self) -> str:
        """How it ended, if it did not say so."""
        status = self.status or 0
        how = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
        said = f"it said last: {self.last_line}" if self.last_line else "it said nothing"
        hint = "the system may have run out of memory (see dmesg)" if status == -SIGKILL else said
        return f"{self.name} {how} {self.after}; {hint}"


@final
class Watch:
    """What is known of a job's processes. Times are seconds of any clock, which never goes back.

    A job fails when nothing has happened for `timeout` seconds.
    """

    def __init__(self, names: Sequence[str], timeout: float, start: float) -> None:
        self.processes = {name: Observed(name, start) for name in names}
        self._ranks = [process for name, process in self.processes.items() if is_rank(name)]
        self._timeout, self._last, self._failed_at = timeout, start, math.inf

    def take(self, name: str, news: News, now: float) -> None:
        """Record news of a process; to print something is no progress."""
        process = self.processes[name]
        if isinstance(news, Printed):
            if news.error:
                process.errors = (process.errors + news.data)[-MAX_KEPT:]
            return
        self._last = process.last = now
        match news:
            case Ended(status):
                process.status, process.ended_at = status, now
            case Failed():
                # A later failure is a consequence of the first.
                process.failed = process.failed or news
            case Progress(exchanges=exchanges, epoch=epoch, step=step):
                # `process_scaling` counts exchanges a second time, from 1.
                process.joined, process.exchanges = True, max(process.exchanges, exchanges)
                if epoch:
                    process.epoch, process.step = epoch, step
            case Arrived():
                process.arrived = True
        if process.failed or process.status:
            self._failed_at = min(self._failed_at, now)

    def decide(self, now: float) -> Conclusion | None:
        """Return the conclusion; None while the job runs."""
        if all(rank.status == 0 for rank in self._ranks):
            return Conclusion("", status=0)
        all_gone = all(one.status is not None for one in self.processes.values())
        if all_gone or now >= self._failed_at + LATE_NEWS_SECONDS:
            return self._cause(now)
        if now >= self._last + self._timeout and not math.isfinite(self._failed_at):
            return self._hang(now)
        return None

    def next_look(self) -> float:
        """Return when `decide` may change its answer without other news."""
        return min(self._last + self._timeout, self._failed_at + LATE_NEWS_SECONDS)

    def after_stacks(self, conclusion: Conclusion, answered: Collection[str], now: float) -> Conclusion:
        """Return the conclusion on a hang when the running ranks were asked for their stacks: who gave none hangs."""
        silent = [self.processes[name] for name in self.running_ranks if name not in answered]
        # One that has not joined may not have begun to run.
        if not any(rank.joined for rank in silent):
            return conclusion
        return _about(silent, f" did not answer {_since(silent, now)}", hang=True)

    @property
    def running_ranks(self) -> tuple[str, ...]:
        """The ranks that have not ended, in their order."""
        return tuple(rank.name for rank in self._ranks if rank.status is None)

    def _cause(self, now: float) -> Conclusion:
        """Return what explains all else, after a failure."""
        in_order = sorted(self.processes.values(), key=lambda one: (one.status != -SIGKILL, one.ended_at))
        # No process kills itself by SIGKILL, and servers have no reason to end.
        from_outside = [one for one in in_order if one.status == -SIGKILL or (one.status and not is_rank(one.name))]
        own = [rank for rank in self._ranks if rank.failed and not rank.failed.by_others and not rank.refused]
        refused = [rank for rank in self._ranks if rank.refused]
        ended = from_outside or (not own and not refused and [one for one in in_order if one.status and not one.failed])
        if ended:
            return Conclusion(ended[0].end, culprits=(ended[0].name,))
        if refused and not own:
            return Conclusion(refused[0].reason, REFUSED, (refused[0].name,))
        if not own and (early := self._ended_early()):
            return early
        if not own and any(rank.status is None and not rank.failed for rank in self._ranks):
            return self._hang(now)
        # Shapes that differ fail in every rank: the reason is given once.
        failed = own or [rank for rank in self._ranks if rank.failed]
        agreed = [rank for rank in failed if rank.reason == failed[0].reason]
        return _about(agreed, f": {failed[0].reason}")

    def _hang(self, now: float) -> Conclusion:
        """Return which ranks keep the other ranks waiting, after nothing has happened for too long."""
        if early := self._ended_early():
            return replace(early, hang=True)
        running = [rank for rank in self._ranks if rank.status is None and not rank.failed]
        if absent := [rank for rank in running if not rank.joined]:
            # A rank that has arrived waits for one that has not.
            absent = [rank for rank in absent if not rank.arrived] or absent
            seconds = now - min(rank.last for rank in absent)
            return _about(absent, f" did not join within {seconds:.0f} s", hang=True)
        fewest, most = (bound(rank.exchanges for rank in running) for bound in (min, max))
        slowest = [rank for rank in running if rank.exchanges == fewest]
        behind = f": exchange {fewest} was its last, {most} that of other ranks" if fewest < most else ""
        return _about(slowest, f" made no progress {_since(slowest, now)}{behind}", hang=True)

    def _ended_early(self) -> Conclusion | None:
        """Return that a process ended in good order while the other ranks still needed it; None if none did."""
        # Who has launched as many exchanges as the other ranks is not waited for.
        most = max((rank.exchanges for rank in self._ranks if rank.status != 0), default=-1)
        needed = [
            one
            for one in self.processes.values()
            if one.status == 0 and (not is_rank(one.name) or not one.joined or one.exchanges < most)
        ]
        if not needed or most < 0:
            return None
        first = min(needed, key=lambda one: one.ended_at)
        return _about([first], f" ended {first.after}, before the other processes")


def _since(processes: Sequence[Observed], now: float) -> str:
    return f"for {now - max(one.last for one in processes):.0f} s {processes[0].after}"


def _about(processes: Sequence[Observed], said: str, hang: bool = False) -> Conclusion:
    names = tuple(one.name for one in processes)
    return Conclusion(", ".join(names) + said, culprits=names, hang=hang)
