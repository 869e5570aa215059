"""What would change an experiment's answer, as several of them say it, with the options of the program that do it."""

from backends import Backend
from parallel_core.system.formatting import figure
from parallel_core.system.machine_watch import usable_cores

__all__ = ["LESS_NOISE", "more_cores", "with_queue", "without_queue"]

LESS_NOISE = "More rounds on a quiet machine (--rounds 20 --budget 60): the noise leaves the question open."


def with_queue(backend: Backend, then: str) -> str:
    """Say what should happen on an engine that queues, for a result of one that does not."""
    # NumPy is the reference, and has no engine that queues.
    engine = (
        "A backend that queues (--backend torch)"
        if backend.name == "numpy"
        else "An engine that queues (--engine async)"
    )
    return f"{engine}: {then}."


def without_queue(then: str) -> str:
    """Say what should happen on an engine that queues nothing, for a result of one that does."""
    return f"An engine that queues nothing (--engine sync): {then}."


def more_cores(backend: Backend) -> str:
    """Say that more cores would change it, if the devices' threads have fewer than one each; empty if they have."""
    on_cpus = sum(device.kind == "cpu" for device in backend.devices)
    threads, cores = on_cpus * backend.workers_per_device * backend.threads_per_device, usable_cores()
    if threads <= cores:
        return ""
    return f"More cores than {figure(cores)}: {threads} threads of devices share them."
