"""Jobs of real frameworks in which something goes wrong, and what must be true of each when it has ended."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

import backends
from parallel_core.training.batches import Settings
from tests.parallel_core.jobs.failures.rank import STRUCK, synthetic_images
from tests.parallel_core.jobs.ranks import wait_until
from tests.parallel_core.training.test_steps import first_epoch
from tests.tree import ROOT

__all__ = ["BATCH_SIZE", "DEADLINE", "ENDING_SECONDS", "STEPS", "TRAINING", "Ended", "Job", "start", "synthetic_losses"]

MARK = "PARALLEL_CORE_TEST_JOB"
DEADLINE = 40
"""Seconds without progress after which a job is given up, if a test waits for that."""
PATIENCE = 30
"""The same if the launcher must notice a fault at once."""
ENDING_SECONDS = 90
"""What a job may take from its deadline to its end."""
GONE_SECONDS = 10
STEPS = 6
BATCH_SIZE = 16
TRAINING = ("run", "data-parallel", "--epochs", "1", "--limit", f"{STEPS}", "--batch-size", f"{BATCH_SIZE}")


class Ended(NamedTuple):
    """What became of a job's launcher."""

    status: int
    output: str
    errors: str

    @property
    def verdict(self) -> str:
        """The one line that says why the job failed."""
        (line,) = [line for line in self.errors.splitlines() if line.startswith("parallel-core: ")]
        return line.removeprefix("parallel-core: ")


class Job(NamedTuple):
    """A job under way. All its processes have a mark in their environment; it writes its files into `directory`."""

    process: "subprocess.Popen[bytes]"
    directory: Path
    deadline: int
    mark: str

    @property
    def files(self) -> Path:
        """The directory that results and checkpoints of the job go to."""
        return self.directory / "files"

    def wait_for_fault(self) -> None:
        """Wait until the fault has happened, or the job has ended."""
        wait_until(lambda: (self.directory / "struck").exists() or self.process.poll() is not None)

    def end(self) -> Ended:
        """Wait for the end of a job whose fault is to happen, and check what must be true of every job that failed."""
        self.wait_for_fault()
        status = self.process.wait(self.deadline + ENDING_SECONDS)
        assert self.processes() == []
        # Files have such names until they are complete.
        assert [path for path in self.files.rglob("*") if path.name.startswith(".")] == []
        return Ended(status, *((self.directory / name).read_text() for name in ("output", "errors")))

    def processes(self, **environment: str) -> Sequence[psutil.Process]:
        """List the job's processes that run, or those of them with this in their environment."""
        wanted = {MARK: self.mark, **environment}.items()
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if wanted <= process.environ().items() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def synthetic_losses(batch_size: int, steps: int) -> Sequence[float]:
    """Return NumPy's losses of one process, on the images that the ranks of these jobs have."""
    reference = backends.load("numpy", devices=1, threads_per_device=1)
    return first_epoch(reference, synthetic_images(), Settings(1, batch_size, limit=steps)).losses


@contextmanager
def start(
    fault: str,
    backend: str,
    directory: Path,
    *more: str,
    rank: int = 1,
    at: int = 3,
    training: Sequence[str] = TRAINING,
    deadline: int = PATIENCE,
    options: Sequence[str] = ("--processes", "2"),
    json: bool = False,
) -> Iterator[Job]:
    """Launch ranks, in one of which something goes wrong; nothing of them is left afterwards.

    `more` are options of the run, and `options` those of the launcher. With `json` the result is to be written.
    """
    files, mark = directory / "files", uuid.uuid4().hex
    files.mkdir(parents=True, exist_ok=True)
    faulty = (sys.executable, "-m", "tests.parallel_core.jobs.failures.rank", fault, str(rank), str(at))
    launch = ("launch", "--backend", backend, "--timeout", str(deadline), *options, "--", *training, *more)
    result = ("--json", str(files / "result.json")) if json else ()
    # A line stays a line.
    own = {"PYTHONPATH": str(ROOT), MARK: mark, STRUCK: str(directory / "struck"), "COLUMNS": "1000"}
    with (directory / "output").open("wb") as output, (directory / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [*faulty, *launch, *result], cwd=ROOT, env={**os.environ, **own}, stdout=output, stderr=errors
        )
    job = Job(process, directory, deadline, mark)
    try:
        yield job
    finally:
        for left in job.processes():
            left.kill()
        process.wait(GONE_SECONDS)
