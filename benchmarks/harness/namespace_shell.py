"""A remote shell for hosts that are network namespaces of this machine, called as `ssh` is.

    python -m benchmarks.harness.namespace_shell HOST=PROCESS,… HOST COMMAND

It becomes a shell that runs COMMAND in the namespaces (network, name of the host) and on the cores of the process that
stands for HOST.
"""

import os
import sys

__all__ = ["inside"]


def inside(process: int) -> tuple[str, ...]:
    """Return the beginning of a command that is run in a process's namespaces, and on its cores."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(process))))
    return ("taskset", "--cpu-list", cores, "nsenter", f"--target={process}", "--net", "--uts", "--")


def main(mapping: str, host: str, *command: str) -> None:
    """Become the shell; like ssh, join the command's words with spaces, and end with 255 for an unknown host."""
    holders = dict(pair.split("=") for pair in mapping.split(","))
    if host not in holders:
        print(f"{host} is none of {', '.join(holders)}", file=sys.stderr)
        sys.exit(255)
    words = (*inside(int(holders[host])), "sh", "-c", " ".join(command))
    os.execvp(words[0], words)


if __name__ == "__main__":
    main(*sys.argv[1:])
