"""`python -m tests.parallel_core.jobs.faulty_rank FAULT AT run …`: parallel-core, with a fault in
rank
1.

With `launch …` it launches such ranks. AT is the exchange at which the fault happens, if it happens
in the training. The file that STRUCK names is made just before.
"""

import importlib
import itertools
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import parallel_core.__main__
from backends import Array, Backend, Device
from backends.process_groups import GroupedBackend, grouped_backend
from backends.process_groups.rendezvous import RANK_VARIABLES
from parallel_core.jobs.job import Job
from parallel_core.training import step as training_step
from parallel_core.training.dataset import Dataset, synthetic

__all__ = ["STRUCK", "synthetic_images"]

STRUCK = "PARALLEL_CORE_TEST_STRUCK"
Gradients = Sequence[Array]


def strike() -> None:
    Path(os.environ[STRUCK]).touch()


def at_exchange(fault: Callable[[GroupedBackend, Gradients], Gradients]) -> Callable[[int], None]:
    """Let what the exchange of a number is to sum pass through a fault."""

    def disturb(number: int) -> None:
        allreduce = GroupedBackend.allreduce

        def faulty(self: GroupedBackend, xs: Gradients) -> tuple[Array, ...]:
            if self.exchanges + 1 == number:
                strike()
                xs = fault(self, xs)
            return allreduce(self, xs)

        GroupedBackend.allreduce = faulty  # type: ignore[method-assign]

    return disturb


def hang_here(_: object, xs: Gradients) -> Gradients:
    """Do not return."""
    time.sleep(1000)
    return xs


hangs = at_exchange(hang_here)
only_tells = at_exchange(lambda _, xs: xs)


@at_exchange
def is_killed(_: GroupedBackend, xs: Gradients) -> Gradients:
    os.kill(os.getpid(), signal.SIGKILL)
    return xs


@at_exchange
def says_other_shapes(_: GroupedBackend, xs: Gradients) -> Gradients:
    """Leave out the last array of each of MXNet's tuples."""
    return [x[:-1] for x in xs]


@at_exchange
def runs_out_of_memory(backend: GroupedBackend, xs: Gradients) -> Gradients:
    """Ask the framework for 4 GB when the system allows 1 GB more than the process has, once rank 0
    has written a checkpoint.
    """
    (folder,) = (word.partition("=")[2] for word in sys.argv if word.startswith("--checkpoint="))
    while not Path(folder, "checkpoint.npz").exists():
        time.sleep(0.01)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    column = backend.asarray(np.ones((32768, 1), dtype=np.float32), backend.devices[-1])
    row = backend.asarray(np.ones((1, 32768), dtype=np.float32), backend.devices[-1])
    backend.wait(backend.launch(backend.ops.matmul, column, row))
    return xs


def never_comes(_: int) -> None:
    strike()
    hang_here(None, [])


def has_other_options(_: int) -> None:
    strike()
    sys.argv += ["--lr", "0.3"]


def is_of_another_version(_: int) -> None:
    strike()
    grouped_backend.package_version = lambda: "0.0.9"


def synthetic_images() -> Dataset:
    """Return the images of every rank."""
    return synthetic("a test needs no more", train=1000, test=50)


def fails_on_a_device(number: int) -> None:
    """Launch an operator of MXNet's on the last device that fails when it runs."""

    def fail(first: Array, *others: Array) -> tuple[Array, ...]:
        import mxnet

        return mxnet.np.random.normal(0, -1, first.shape, ctx=first.ctx), *others

    exchange = training_step.exchange
    numbers = itertools.count(1)

    def exchange_failed(backend: Backend, xs: Gradients, *buckets: Any) -> list[Array]:
        if next(numbers) == number:
            strike()
            xs = [*xs[:-1], backend.launch(lambda x: fail(*x), xs[-1])]
        return exchange(backend, xs, *buckets)

    training_step.exchange = exchange_failed  # type: ignore[attr-defined]


def computes_nan(number: int) -> None:
    """Give NaN to the last device from then on."""
    split_and_load = GroupedBackend.split_and_load

    def split_and_spoil(
        self: GroupedBackend, x: np.ndarray, devices: Sequence[Device]
    ) -> tuple[Array, ...]:
        shares = split_and_load(self, x, devices)
        if self.exchanges < number - 1 or x.dtype != np.float32:
            return shares
        strike()
        spoilt = self.asarray(self.to_numpy(shares[-1]) * np.float32(math.nan), devices[-1])
        return (*shares[:-1], spoilt)

    GroupedBackend.split_and_load = split_and_spoil  # type: ignore[method-assign]


def launch_faulty(fault: Sequence[str]) -> None:
    """Have the command `launch` start ranks with the fault."""
    command: Any = importlib.import_module("parallel_core.command_line.launch")
    launch_job = command.launch_job

    def launch(job: Job) -> int:
        # `python -P -m parallel_core run …`
        before, after = job.command[:3], job.command[4:]
        faulty = (*before, "tests.parallel_core.jobs.faulty_rank", *fault, *after)
        return int(launch_job(replace(job, command=faulty)))

    command.launch_job = launch


def main() -> None:
    """Be the launcher, or a rank: rank 1 has the fault."""
    fault, exchange = sys.argv[1:3]
    sys.argv = ["parallel-core", *sys.argv[3:]]
    if sys.argv[1] == "launch":
        launch_faulty((fault, exchange))
    else:
        # These need not be read, unpacked and checked by every rank.
        arguments: Any = importlib.import_module("parallel_core.run.arguments")
        arguments.load_fashion_mnist = lambda _: synthetic_images()
        rank = next(os.environ[name] for name in RANK_VARIABLES if name in os.environ)
        # A job that is started again is not disturbed again.
        if rank == "1" and not Path(os.environ[STRUCK]).exists():
            globals()[fault](int(exchange))
    parallel_core.__main__.main()


if __name__ == "__main__":
    main()
