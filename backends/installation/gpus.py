"""The GPUs that a framework lists, once it is imported.

It may be unable to compute on them: see `gpu_probe`.
"""

from dataclasses import dataclass

from backends.installation.diagnosis import Diagnosis

__all__ = ["Gpu", "Gpus", "InstallationFailure"]


@dataclass(frozen=True)
class InstallationFailure:
    """The message of a framework that failed, in one line, and its diagnosis if the failure is known."""

    reason: str
    diagnosis: Diagnosis | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU as a framework lists it; None for what the framework does not tell.

    `peers` are the GPUs whose memory it can reach without the host.
    """

    index: int
    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    peers: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a framework. `cuda` is what it was built for, empty for a CPU build.

    `failure` is why it can use none; `page_locked` is why host memory cannot be page-locked, None if it can or nobody
    tried.
    """

    cuda: str = ""
    devices: tuple[Gpu, ...] = ()
    failure: InstallationFailure | None = None
    page_locked: InstallationFailure | None = None
