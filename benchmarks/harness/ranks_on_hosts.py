"""Start a rank of a command on each host by hand: with the variables of torchrun, or of MXNet's own launcher.

    python -m benchmarks.harness.ranks_on_hosts HOST=PROCESS,… BACKEND COMMAND…

A host is a network namespace, named by its address, that of a process. The first host has rank 0, whose output is
shown, and MXNet's scheduler and server. When one process fails, all others are killed.
"""

import os
import random
import subprocess
import sys
from time import sleep

from backends.process_groups.addresses import PORTS
from benchmarks.harness.two_hosts import inside


def main(mapping: str, backend: str, *command: str) -> int:
    """Start all processes and wait for them; return the highest exit status, 1 for a process that was killed."""
    holders = dict(pair.split("=") for pair in mapping.split(","))
    (address, *_), size, port = holders, str(len(holders)), str(random.choice(PORTS))
    torchrun = {"MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": "1"}
    places = [(host, torchrun | {"RANK": str(rank), "LOCAL_RANK": "0"}) for rank, host in enumerate(holders)]
    if backend == "mxnet":
        root = {"DMLC_PS_ROOT_URI": address, "DMLC_PS_ROOT_PORT": port}
        root |= {"DMLC_NUM_WORKER": size, "DMLC_NUM_SERVER": "1"}
        # ps-lite numbers workers as they come, and the first host is to show the result.
        places = [(host, variables | root | {"DMLC_ROLE": "worker"}) for host, variables in places]
        places += [(address, {**root, "DMLC_ROLE": role}) for role in ("scheduler", "server")]
    processes = [
        subprocess.Popen(
            (*inside(int(holders[host])), *command),
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=None if variables.get("RANK") == "0" else subprocess.DEVNULL,
        )
        for host, variables in places
    ]
    try:
        while None in (statuses := [process.poll() for process in processes]) and not any(statuses):
            sleep(0.05)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return max(1 if status < 0 else status for status in statuses if status is not None)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
