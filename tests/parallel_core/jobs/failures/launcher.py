"""`python -m tests.parallel_core.jobs.failures.launcher FAULT RANK AT launch …`: parallel-core with faulty ranks."""

import importlib
import socket
import sys
from dataclasses import replace
from typing import Any

import parallel_core.__main__
from parallel_core.jobs.job import Job

MODULE = "parallel_core"


def main() -> None:
    """Be the command `parallel-core launch`, but for what it launches."""
    _, *fault, subcommand = sys.argv[:5]
    sys.argv = ["parallel-core", subcommand, *sys.argv[5:]]
    command = importlib.import_module("parallel_core.command_line.launch")
    launch = command.launch_job

    if fault[0] == "finds_its_port_taken":
        # It was free when the launcher looked.
        command.listen_at = lambda *_: socket.socket()  # type: ignore[attr-defined]

    def launch_faulty(job: Job, *arguments: Any, **named: Any) -> int:
        # `python -P -m parallel_core run …`
        place = job.command.index(MODULE)
        faulty = (*job.command[:place], "tests.parallel_core.jobs.failures.rank", *fault, *job.command[place + 1 :])
        return int(launch(replace(job, command=faulty), *arguments, **named))

    command.launch_job = launch_faulty  # type: ignore[attr-defined]
    parallel_core.__main__.main()


if __name__ == "__main__":
    main()
