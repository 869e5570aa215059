"""Decide what has become of a job from its messages and their times: pure, without clocks and processes.

The first failure is seldom the cause: where one rank is killed, the others' complaints may arrive before the news of
it. So a verdict waits for a moment, and then takes what explains the rest (`causes.py`).
"""

import math
from collections.abc import Sequence

from parallel_core.jobs.failures.causes import Seen, Verdict, cause_of, hang
from parallel_core.jobs.messages import (
    Arrived,
    Ended,
    Failed,
    FromAgent,
    Joined,
    Printed,
    Process,
    Progress,
    Reported,
    TrainedEpoch,
    Training,
    Unstartable,
    is_rank,
)

__all__ = ["GRACE_SECONDS", "Watch"]

GRACE_SECONDS = 1.0
"""How long after the first failure others may report theirs."""
FINISHED = Verdict("", status=0)


class Watch:
    """What is known of a job's processes. Times are seconds of any clock, which never goes back.

    `hosts` are the names of the job's hosts; a job fails when nothing has happened for `timeout` seconds.
    """

    def __init__(self, processes: Sequence[Process], hosts: Sequence[str], timeout: float, start: float) -> None:
        self._seen = {process.name: Seen(process.name, hosts[process.host], start) for process in processes}
        self._host_of = {process.name: process.host for process in processes}
        self._timeout = timeout
        self._last = start
        self._failed_at = math.inf

    def see(self, message: FromAgent, now: float) -> None:
        """Take note of a message."""
        seen = self._seen[message.process]
        match message:
            case Printed(data=data, error=error):
                seen.print(data, error)
            case Reported(report=report):
                self._last = seen.last = now
                match report:
                    case Arrived(host=host):
                        seen.arrived, seen.host = True, host
                    case Joined(host=host):
                        seen.joined, seen.host = True, host
                    case Progress():
                        seen.joined, seen.progress = True, report.after(seen.progress)
                    case Failed():
                        # The first reason is the reason.
                        seen.failed = seen.failed or report
                        self._fail(now)
                    case Training() | TrainedEpoch():
                        pass
            case Ended(status=status):
                self._last, seen.status, seen.ended_at = now, status, now
                if status != 0:
                    self._fail(now)
            case Unstartable(reason=reason):
                seen.unstartable, seen.ended_at = reason, now
                self._fail(now)

    def lose_agent(self, host: int, reason: str, now: float) -> None:
        """Take note that a host's agent is gone, and all its processes with it."""
        for name, seen in self._seen.items():
            if self._host_of[name] == host and not seen.is_gone:
                seen.lost, seen.ended_at = reason, now
                self._fail(now)

    def decide(self, now: float) -> Verdict | None:
        """Return what has become of the job; None while it runs."""
        everyone = list(self._seen.values())
        ranks = [seen for seen in everyone if is_rank(seen.name)]
        if all(rank.status == 0 for rank in ranks):
            return FINISHED
        if now >= self._failed_at + GRACE_SECONDS or all(seen.is_gone for seen in everyone):
            return cause_of(everyone, now)
        if now >= self._last + self._timeout and not math.isfinite(self._failed_at):
            return hang(everyone, now)
        return None

    def next_look(self) -> float:
        """Return the time at which `decide` may say something else though nothing is seen until then."""
        return min(self._last + self._timeout, self._failed_at + GRACE_SECONDS)

    @property
    def running_ranks(self) -> tuple[str, ...]:
        """The ranks that have not ended, in their order."""
        return tuple(name for name, seen in self._seen.items() if is_rank(name) and not seen.is_gone)

    def host_of(self, name: str) -> str:
        """Return the name of a process's host, as it calls itself."""
        return self._seen[name].host

    def last_words(self, name: str) -> str:
        """Return the end of what a process wrote to standard error."""
        return self._seen[name].errors.decode(errors="replace")

    def _fail(self, now: float) -> None:
        self._failed_at = min(self._failed_at, now)
