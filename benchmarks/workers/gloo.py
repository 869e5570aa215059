"""Time torch.distributed's all_reduce over gloo: two processes of this machine, a core each."""

import json
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from backends.host import core_numbers
from benchmarks.harness.side_by_side import worker
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.environment import set_environment
from benchmarks.workers.vectors import drawn, time_sizes

TIMEOUT = timedelta(seconds=60)


def measure(sizes: list[int], rank: int = 0, meeting: str = "") -> dict[str, Any]:
    """Time it at each size; rank 0 starts rank 1, and they meet in a file. The cases are named `gloo, SIZE B`."""
    if rank == 1:
        return take_part(sizes, rank, meeting)
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder, "meeting"))
        # It stays in this process's group, which is killed whole when this process ends.
        other = subprocess.Popen(worker("gloo", sizes=sizes, rank=1, meeting=place), stdout=subprocess.PIPE, text=True)
        try:
            answered = take_part(sizes, rank, place)
            output, _ = other.communicate(timeout=TIMEOUT.total_seconds())
        finally:
            other.kill()
            other.wait()
    if other.returncode != 0:
        sys.exit(f"the second process ended with status {other.returncode}")
    answered["problems"] += json.loads(output)["problems"]
    return answered


def take_part(sizes: list[int], rank: int, meeting: str) -> dict[str, Any]:
    """Be one of the two processes, on the core of its rank."""
    os.sched_setaffinity(0, {core_numbers()[rank]})
    # Loopback: the machine's name need not lead to an address.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    set_environment(threads=1)
    import torch
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=TIMEOUT)

    def load(size: int) -> list[Any]:
        return [torch.tensor(drawn(size, rank))]

    cases, problems = time_sizes("gloo", sizes, load, lambda data: distributed.all_reduce(data[0]), lambda x: x.numpy())
    distributed.destroy_process_group()
    return compose(cases, {"torch": torch.__version__}, problems)


if __name__ == "__main__":
    answer(measure)
