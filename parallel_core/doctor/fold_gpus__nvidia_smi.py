"""What NVIDIA's driver tells of the GPUs, asked of its own program `nvidia-smi`."""

import shutil
import subprocess
from dataclasses import dataclass

from parallel_core.doctor.finding import Explanation

__all__ = ["Card", "Cards", "ask_driver"]

SECONDS = 10.0
FIELDS = ("index", "name", "memory.total", "driver_version", "compute_cap")
MEBIBYTE = 2**20
FAILURES = (
    (
        "Driver/library version mismatch",
        "the NVIDIA driver was updated, and its old kernel module still runs",
        "sudo reboot",
    ),
    (
        "couldn't communicate with the NVIDIA driver",
        "the NVIDIA driver's kernel module is not loaded",
        "sudo modprobe nvidia",
    ),
)


@dataclass(frozen=True)
class Card:
    """One GPU as its driver sees it. `compute_capability` is None where the driver is too old to tell."""

    index: int
    name: str
    memory_bytes: int
    driver: str
    compute_capability: str | None


@dataclass(frozen=True)
class Cards:
    """All GPUs of the machine; `failure` is why the driver does not answer, None where there is none to ask."""

    found: tuple[Card, ...] = ()
    failure: Explanation | None = None


def ask_driver() -> Cards:
    """List the machine's GPUs, also those that CUDA_VISIBLE_DEVICES hides; none where there is no `nvidia-smi`."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Cards()
    # Drivers before 510 do not know the last field.
    for fields in (FIELDS, FIELDS[:-1]):
        command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Cards(failure=Explanation(f"nvidia-smi does not answer ({type(error).__name__})", "sudo reboot"))
        said = f"{done.stdout} {done.stderr}"
        if "not a valid field" not in said:
            break
    if done.returncode == 0:
        return Cards(tuple(_card(line) for line in done.stdout.splitlines() if line.count(",") == len(fields) - 1))
    if "No devices were found" in said:
        return Cards()
    for phrase, cause, command_line in FAILURES:
        if phrase in said:
            return Cards(failure=Explanation(cause, command_line))
    return Cards(failure=Explanation(f"nvidia-smi fails: {' '.join(said.split())}", "nvidia-smi"))


def _card(line: str) -> Card:
    index, name, memory, driver, *capability = (part.strip() for part in line.split(","))
    megabytes = int(memory) if memory.isdigit() else 0
    return Card(int(index), name, megabytes * MEBIBYTE, driver, capability[0] if capability else None)
