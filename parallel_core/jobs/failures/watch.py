"""Decide what has become of a job from its messages and their times: a pure computation, without clock or processes.

The first failure is seldom the cause: if one rank is killed, the others' complaints may arrive before the news of it.
So the conclusion waits for a moment, and then takes what explains the rest (`causes.py`).
"""

import math
from collections.abc import Collection, Sequence

from parallel_core.jobs.failures.causes import Conclusion, Observed, cause_of, hang, without_answer
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

__all__ = ["LATE_NEWS_SECONDS", "Watch"]

LATE_NEWS_SECONDS = 1.0
"""How long after the first failure other processes may report theirs."""
FINISHED = Conclusion("", status=0)


class Watch:
    """What is known of a job's processes. Times are seconds of any clock, which never goes back.

    `hosts` are the names of the job's hosts; a job fails when nothing has happened for `timeout` seconds.
    """

    def __init__(self, processes: Sequence[Process], hosts: Sequence[str], timeout: float, start: float) -> None:
        self._processes = {process.name: Observed(process.name, hosts[process.host], start) for process in processes}
        self._host_of = {process.name: process.host for process in processes}
        self._timeout = timeout
        self._last = start
        self._failed_at = math.inf

    def record(self, message: FromAgent, now: float) -> None:
        """Record a message."""
        process = self._processes[message.process]
        match message:
            case Printed(data=data, error=error):
                process.print(data, error)
            case Reported(report=report):
                self._last = process.last = now
                match report:
                    case Arrived(host=host):
                        process.arrived, process.host = True, host
                    case Joined(host=host):
                        process.joined, process.host = True, host
                    case Progress():
                        process.joined, process.progress = True, report.after(process.progress)
                    case Failed():
                        # A later failure is a consequence of the first.
                        process.failed = process.failed or report
                        self._fail(now)
                    case Training() | TrainedEpoch():
                        pass
            case Ended(status=status):
                self._last, process.status, process.ended_at = now, status, now
                if status != 0:
                    self._fail(now)
            case Unstartable(reason=reason):
                process.unstartable, process.ended_at = reason, now
                self._fail(now)

    def lose_agent(self, host: int, reason: str, now: float) -> None:
        """Record that a host's agent is gone, and all its processes with it."""
        for name, process in self._processes.items():
            if self._host_of[name] == host and not process.is_gone:
                process.lost, process.ended_at = reason, now
                self._fail(now)

    def decide(self, now: float) -> Conclusion | None:
        """Return the conclusion; None while the job runs."""
        everyone = list(self._processes.values())
        ranks = [one for one in everyone if is_rank(one.name)]
        if all(rank.status == 0 for rank in ranks):
            return FINISHED
        if now >= self._failed_at + LATE_NEWS_SECONDS or all(one.is_gone for one in everyone):
            return cause_of(everyone, now)
        if now >= self._last + self._timeout and not math.isfinite(self._failed_at):
            return hang(everyone, now)
        return None

    def next_look(self) -> float:
        """Return when `decide` may change its answer without another message."""
        return min(self._last + self._timeout, self._failed_at + LATE_NEWS_SECONDS)

    def after_stacks(self, conclusion: Conclusion, answered: Collection[str], now: float) -> Conclusion:
        """Return the conclusion on a hang when the running ranks have been asked for their stacks."""
        silent = [self._processes[name] for name in self.running_ranks if name not in answered]
        # One that has not joined may not have begun to run.
        return without_answer(silent, now) if any(rank.joined for rank in silent) else conclusion

    @property
    def running_ranks(self) -> tuple[str, ...]:
        """The ranks that have not ended, in their order."""
        return tuple(name for name, process in self._processes.items() if is_rank(name) and not process.is_gone)

    def host_of(self, name: str) -> str:
        """Return the name of a process's host, as it calls itself."""
        return self._processes[name].host

    def last_words(self, name: str) -> str:
        """Return the end of what a process wrote to standard error."""
        return self._processes[name].errors.decode(errors="replace")

    def _fail(self, now: float) -> None:
        self._failed_at = min(self._failed_at, now)
