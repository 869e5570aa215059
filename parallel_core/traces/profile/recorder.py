"""Count a program's steps, and let its framework's profiler record some of them; this runs in the
program's processes.

After `warm_up` steps the profiler starts, at the end of a step, and `steps` steps later it stops
and writes its trace. A process writes after each step how far it is, so that this is known of one
that is killed, too. Only Python's own library is imported here, because the program's environment
may have no more.

A step ends where the program says so, by `profiled_step`; else at its own profiler's step, else
when its first optimizer has stepped. One thread's marks count: the thread that marked first.

What a step takes without the profiler is measured before the recording and after it, some steps at
a time, between two moments when nothing is queued. The first steps may compile, or capture a graph,
so the median of these times counts.
"""

import atexit
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from statistics import median_low
from time import perf_counter
from typing import Any, Literal, NamedTuple, Protocol

Marker = Literal["profiled_step", "profiler", "optimizer"]
PRECEDENCE: tuple[Marker, ...] = ("optimizer", "profiler", "profiled_step")
"""If several mark steps, the last of these counts."""

ENDED = "the program ended"
STEPS_AT_A_TIME = 2
"""So many steps without the profiler are timed together: a device may be behind one alone."""
TIMED_AFTERWARDS = 3
"""How often that is done after the recording."""
THREADS = Path("/proc/self/task")
"""Linux counts what each thread did (proc(5))."""

_recorder: "Recorder | None" = None


class RecordingProfiler(Protocol):
    """A framework's profiler, as the recorder uses it."""

    framework: str

    def unavailable(self) -> str:
        """Return why it cannot record now, as a clause: the program runs it itself, say; empty if
        it can.
        """

    def settle(self) -> None:
        """Wait for what was queued, so that steps lie within the recording; raises the errors of
        what was queued.
        """

    def start(self) -> None:
        """Begin to record."""

    def stop(self, path: Path | None) -> None:
        """Stop, and write a trace to `path`; None: forget what was recorded."""

    def step(self, number: int) -> AbstractContextManager[object]:
        """Return the context whose time in the trace is a step."""

    def rank(self) -> int | None:
        """Return the rank of this process, if it has one."""


class CoreTime(NamedTuple):
    """How many nanoseconds a thread has had a core, and has waited for one that others had."""

    ran: int
    waited: int


def core_times() -> dict[str, CoreTime]:
    """Return the times of this process's threads, by their numbers; none where Linux has none."""
    times: dict[str, CoreTime] = {}
    for path in THREADS.glob("*/schedstat"):
        # A thread may end meanwhile.
        with suppress(OSError, ValueError):
            ran, waited, _ = map(int, path.read_text().split())
            times[path.parent.name] = CoreTime(ran, waited)
    return times


def core_wait_share(
    before: Mapping[str, CoreTime], after: Mapping[str, CoreTime], seconds: float
) -> float | None:
    """Return for which share of some seconds the busiest thread waited for a core; None if that is
    not known.
    """
    if not after:
        return None
    nothing = CoreTime(0, 0)
    busiest = max(after, key=lambda thread: after[thread].ran - before.get(thread, nothing).ran)
    waited = after[busiest].waited - before.get(busiest, nothing).waited
    return waited / 1e9 / seconds


def begin(settings: Mapping[str, Any]) -> "Recorder":
    """Return this process's recorder, the same for all frameworks."""
    global _recorder
    _recorder = _recorder or Recorder(
        Path(settings["folder"]), settings["warm_up"], settings["steps"]
    )
    return _recorder


def current() -> "Recorder | None":
    """Return this process's recorder; None before a framework was imported."""
    return _recorder


class Recorder:
    """How far a process is: first it warms up, then it records, then it is done."""

    def __init__(self, folder: Path, warm_up: int, steps: int) -> None:
        self.folder, self.warm_up, self.steps = folder, warm_up, steps
        self.profilers: list[RecordingProfiler] = []
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self.pid = os.getpid()
        self.seen: Counter[Marker] = Counter()
        self.core_times: Mapping[str, CoreTime] = {}
        """Those at the beginning of the recording."""
        self._count_by(PRECEDENCE[0])

    def _count_by(self, marker: Marker) -> None:
        """Begin to count steps by a marker, with nothing recorded."""
        self.marker = marker
        self.thread: int | None = None
        self.timed_since: float | None = None
        """When the devices were last waited for, to time steps without the profiler."""
        self.timed_steps = 0
        """How many steps have ended since then."""
        self.unprofiled: list[float] = []
        """What a step took without the profiler, in seconds: a time for some steps each."""
        self.recording: RecordingProfiler | None = None
        self.recording_since = 0.0
        self.recorded = 0
        self.core_wait_share: float | None = None
        self.open_step: AbstractContextManager[object] = nullcontext()
        self.is_done = False
        self.trace: Path | None = None
        self.hindrance = ""

    def add(self, profiler: RecordingProfiler) -> None:
        """Add the profiler of a framework that the program has imported."""
        self.profilers.append(profiler)
        self._report()

    def mark(self, marker: Marker, framework: str | None = None) -> None:
        """Note that a step has ended; None: of a framework that is not known, the last that was
        imported is meant.
        """
        if os.getpid() != self.pid:
            # This process was forked; the profiler, if it ran, went on in the other one.
            self._begin_afresh()
        if PRECEDENCE.index(marker) > PRECEDENCE.index(self.marker):
            self._prefer(marker)
        if self.is_done:
            return
        thread = threading.get_ident()
        if marker != self.marker or self.thread not in (None, thread):
            return
        self.thread = thread
        self.seen[marker] += 1
        known = [one for one in self.profilers if framework in (None, one.framework)]
        if self.trace is not None:
            self._time_later_step(known[-1])
            return
        if self.recording is not None:
            with self._failing(self.recording):
                self.open_step.__exit__(None, None, None)
                self.recorded += 1
                if self.recorded < self.steps:
                    self._begin_step(self.recording)
            if self.recorded == self.steps:
                self._finish()
                return
        elif known:
            self._time_earlier_step(known[-1])
            # A program may end before it has warmed up, and what hindered it is reported, too.
            self.hindrance = known[-1].unavailable()
            if self.seen[marker] >= self.warm_up and not self.hindrance:
                self._start(known[-1])
        self._report()

    def _prefer(self, marker: Marker) -> None:
        """Count by a marker that comes before the present one.

        What the program marks itself takes the place of a recording by other marks, too.
        """
        has_failed = self.is_done and self.trace is None
        has_begun = self.recording is not None or self.trace is not None
        if has_failed or (has_begun and marker != "profiled_step"):
            return
        if self.recording is not None:
            with suppress(Exception):
                self.recording.stop(None)
        self._count_by(marker)

    def _time_earlier_step(self, profiler: RecordingProfiler) -> None:
        """Count a step before the recording; the last ones are timed."""
        if self.timed_since is not None:
            self.timed_steps += 1
        elif self.seen[self.marker] >= self.warm_up - STEPS_AT_A_TIME:
            self._settle_and_time(profiler)

    def _time_later_step(self, profiler: RecordingProfiler) -> None:
        """Count a step after the recording, and report what some of them took."""
        if profiler.unavailable():
            self.is_done = True
            return
        self.timed_steps += 1
        if self.timed_steps == STEPS_AT_A_TIME:
            self._settle_and_time(profiler)
            self.is_done = len(self.unprofiled) > TIMED_AFTERWARDS
            self._report()

    def _settle_and_time(self, profiler: RecordingProfiler) -> None:
        """Note what the steps took since the devices were last waited for, and wait for them."""
        profiler.settle()
        now = perf_counter()
        if self.timed_since is not None and self.timed_steps:
            self.unprofiled.append((now - self.timed_since) / self.timed_steps)
        self.timed_since, self.timed_steps = now, 0

    def give_way(self) -> None:
        """Stop before the time, because the program is about to run the framework's profiler
        itself.
        """
        if self.recording is not None and os.getpid() == self.pid:
            self.hindrance = "the program started the profiler itself"
            self._stop_early()

    def _start(self, profiler: RecordingProfiler) -> None:
        self._settle_and_time(profiler)
        with self._failing(profiler):
            profiler.start()
            atexit.register(self._at_exit)
            # A process that multiprocessing forked ends without atexit.
            from multiprocessing.util import Finalize

            Finalize(None, self._at_exit, exitpriority=100)
            self.recording = profiler
            self.core_times, self.recording_since = core_times(), perf_counter()
            self._begin_step(profiler)

    @contextmanager
    def _failing(self, profiler: RecordingProfiler) -> Iterator[None]:
        """Give up if the profiler fails: the program goes on."""
        try:
            yield
        except Exception as error:
            self.is_done, self.recording = True, None
            self.hindrance = f"the profiler failed ({type(error).__name__}: {error})"
            with suppress(Exception):
                profiler.stop(None)

    def _begin_step(self, profiler: RecordingProfiler) -> None:
        self.open_step = profiler.step(self.seen[self.marker])
        self.open_step.__enter__()

    def _finish(self) -> None:
        profiler = self.recording
        assert profiler is not None
        path = self.folder / f"{self.pid}.json"
        try:
            profiler.settle()
        finally:
            seconds = perf_counter() - self.recording_since
            self.core_wait_share = core_wait_share(self.core_times, core_times(), seconds)
            with self._failing(profiler):
                profiler.stop(path)
                self.trace = path
            self._report()
            self.recording = None
            self.timed_since, self.timed_steps = perf_counter(), 0

    def _stop_early(self) -> None:
        """Keep the whole steps that were recorded; without any, the recording may begin again."""
        assert self.recording is not None
        self.open_step = nullcontext()
        if self.recorded:
            self._finish()
            self.is_done = True
            return
        with self._failing(self.recording):
            self.recording.stop(None)
        self.recording = None
        self._report()

    def _at_exit(self) -> None:
        if self.recording is not None and os.getpid() == self.pid:
            self.hindrance = ENDED
            self._stop_early()

    def _report(self) -> None:
        profiler = self.recording or (self.profilers[-1] if self.profilers else None)
        if profiler is None:
            return
        report = {
            "pid": self.pid,
            "framework": profiler.framework,
            "rank": profiler.rank(),
            "marker": self.marker,
            "steps_seen": self.seen[self.marker],
            "steps_recorded": self.recorded,
            # Of two, the shorter: the other one may be a step that compiles.
            "unprofiled_step_seconds": median_low(self.unprofiled) if self.unprofiled else None,
            "core_wait_share": self.core_wait_share,
            "trace": self.trace and self.trace.name,
            "hindrance": self.hindrance,
        }
        path = self.folder / f"{self.pid}.report"
        unfinished = path.with_suffix(".unfinished")
        # Without room on the disk, the program goes on.
        with suppress(OSError):
            unfinished.write_text(json.dumps(report), encoding="utf-8")
            unfinished.replace(path)
