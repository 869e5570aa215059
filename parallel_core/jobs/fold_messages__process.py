"""One process of a job, as an agent is told to start it. Agents import this, so it imports nothing that takes time."""

import msgspec

__all__ = ["Process", "is_rank"]


class Process(msgspec.Struct, frozen=True):
    """One process: `name` is `rank 0`, `server 0` or `scheduler`; `host` an index of the job's hosts.

    `environment` is added to what the agent has itself; a variable that is None is taken away.
    """

    name: str
    host: int
    command: tuple[str, ...]
    environment: dict[str, str | None]


def is_rank(name: str) -> bool:
    """Tell whether a process is one of the training's, and not a scheduler or server beside them, by its name."""
    return name.startswith("rank ")
