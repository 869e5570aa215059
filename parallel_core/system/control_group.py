"""The limits that a container sets for the processes in it."""

from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Where a container sees its own limits (Linux, "Control Group v2")."""


def read_limits(file: str) -> list[int]:
    """Return the numbers in a file of the control group; none without a limit, for which the file says `max`."""
    try:
        return [int(word) for word in (CONTROL_GROUP / file).read_text().split()]
    except (OSError, ValueError):
        return []


def processor_quota() -> float | None:
    """Return of how many cores the time may be used; None if there is no limit."""
    limits = read_limits("cpu.max")
    return limits[0] / limits[1] if len(limits) == 2 else None
