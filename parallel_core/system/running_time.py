"""How long the threads of this process ran, or were ready to run and had no core.

Linux counts both for each thread (`/proc/self/task/*/schedstat`). The time in which a thread waits
for a lock, an event or a disk is in neither: so an operation that only waits is told from one that
other programs delay. The counts of a running thread move once a tick, every few milliseconds, so
only sums over many operations mean anything.
"""

from collections.abc import Mapping
from pathlib import Path
from threading import get_native_id

TASKS = Path("/proc/self/task")


def thread_times() -> dict[int, int]:
    """Return the nanoseconds that each thread ran or was ready to run, by the thread's number.

    Empty if the system does not count them, as macOS.
    """
    times = {}
    for statistics in TASKS.glob("*/schedstat"):
        try:
            running, ready, _slices = statistics.read_text().split()
        except (OSError, ValueError):
            # The thread has ended meanwhile.
            continue
        times[int(statistics.parent.name)] = int(running) + int(ready)
    return times


def others_seconds_since(before: Mapping[int, int]) -> float | None:
    """Return the seconds that all threads but the calling one worked since `thread_times` was
    `before`; None if they are not counted.
    """
    after = thread_times()
    if not before or not after:
        return None
    del after[get_native_id()]
    nanoseconds = sum(time - before.get(thread, 0) for thread, time in after.items())
    return nanoseconds / 1e9
