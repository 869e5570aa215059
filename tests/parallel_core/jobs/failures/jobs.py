"""Jobs of real frameworks in which something goes wrong, and what must be true of each when it has ended."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import backends
from parallel_core.training.batches import Settings
from tests.parallel_core.jobs.failures.rank import STRUCK, synthetic_images
from tests.parallel_core.training.test_steps import first_epoch

__all__ = [
    "BATCH_SIZE",
    "DEADLINE",
    "ENDING_SECONDS",
    "FRAMEWORKS",
    "STEPS",
    "TRAINING",
    "Ended",
    "Job",
    "start",
    "synthetic_losses",
]

FRAMEWORKS = ("jax", "mxnet", "torch")
"""Those that have processes."""
MARK = "PARALLEL_CORE_TEST_JOB"
DEADLINE = 20
"""Seconds without progress after which a job is given up, if a test waits for that."""
PATIENCE = 30
"""The same if the launcher must notice a fault at once."""
ENDING_SECONDS = 15
"""What a job may take from its deadline to its end."""
STARTING_SECONDS = 60
"""Frameworks load for as long as the machine lets them; no fault has happened by then."""
GONE_SECONDS = 10
STEPS = 6
BATCH_SIZE = 16
TRAINING = ("run", "data-parallel", "--epochs", "1", "--limit", f"{STEPS}", "--batch-size", f"{BATCH_SIZE}")


@dataclass(frozen=True)
class Ended:
    """What became of a job's launcher."""

    status: int
    output: str
    errors: str

    @property
    def verdict(self) -> str:
        """The one line that says why the job failed."""
        (line,) = [line for line in self.errors.splitlines() if line.startswith("parallel-core: ")]
        return line.removeprefix("parallel-core: ")


@dataclass(frozen=True)
class Job:
    """A job under way. All its processes have a mark in their environment; it writes its files into `directory`."""

    process: "subprocess.Popen[bytes]"
    directory: Path
    deadline: int
    mark: str = field(repr=False)

    @property
    def files(self) -> Path:
        """The directory that results and checkpoints of the job go to."""
        return self.directory / "files"

    def wait_for_fault(self) -> None:
        """Wait until the fault has happened, or the job has ended."""
        self.wait_until(lambda: (self.directory / "struck").exists() or self.process.poll() is not None)

    def wait_until(self, happened: Callable[[], bool], seconds: float = STARTING_SECONDS) -> None:
        """Wait for something, for no longer than a minute."""
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, f"{self.errors()}: {self.processes()}"
            time.sleep(0.02)

    def end(self) -> Ended:
        """Wait for the end of a job whose fault is to happen, and check what must be true of every job that failed."""
        self.wait_for_fault()
        status = self.process.wait(self.deadline + ENDING_SECONDS)
        assert self.processes() == []
        assert self.half_written() == []
        return Ended(status, (self.directory / "output").read_text(), self.errors())

    def errors(self) -> str:
        """Return what the launcher has written to standard error by now."""
        return (self.directory / "errors").read_text()

    def processes(self, **environment: str) -> Sequence[psutil.Process]:
        """List the job's processes that run, or those of them with this in their environment."""
        wanted = {MARK: self.mark, **environment}.items()
        found = []
        for process in psutil.process_iter():
            try:
                if wanted <= process.environ().items() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def half_written(self) -> Sequence[Path]:
        """List files under the names that files have until they are complete."""
        return [path for path in self.files.rglob("*") if path.name.startswith(".")]


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
    before: Sequence[str] = (),
    options: Sequence[str] = (),
    json: bool = False,
) -> Iterator[Job]:
    """Launch two ranks, in one of which something goes wrong; nothing of them is left afterwards.

    `more` are options of the run, `options` those of the launcher, and `before` is a command that is to run it. With
    `json` the result is to be written.
    """
    files = directory / "files"
    files.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    command = [
        sys.executable,
        "-m",
        "tests.parallel_core.jobs.failures.launcher",
        fault,
        str(rank),
        str(at),
        "launch",
        "--processes",
        "2",
    ]
    command += ["--backend", backend, "--timeout", str(deadline), *options, "--", *training, *more]
    command += ["--json", str(files / "result.json")] if json else []
    root = Path(__file__).parents[4]
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        MARK: mark,
        STRUCK: str(directory / "struck"),
        # A line stays a line.
        "COLUMNS": "1000",
    }
    with (directory / "output").open("wb") as output, (directory / "errors").open("wb") as errors:
        process = subprocess.Popen([*before, *command], cwd=root, env=environment, stdout=output, stderr=errors)
    job = Job(process, directory, deadline, mark)
    try:
        yield job
    finally:
        for left in job.processes():
            left.kill()
        process.wait(GONE_SECONDS)
