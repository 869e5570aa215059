"""Be MXNet's scheduler or a server: `python -m backends.mxnet.parameter_server [SECONDS]`.

DMLC_ROLE says which. Importing MXNet then serves until all workers are done, and ends the process.
ps-lite has no deadline: if a process of the job dies, the other processes wait for ever. So with
SECONDS, a thread ends this one with status 1 after so long without progress; without, whoever
started it ends it.
"""

import os
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from backends.errors import BackendError
from backends.mxnet.installation import load_cuda_libraries

NO_PORT = "bind failed"
ESTABLISHED = 1
"""Of the first byte of Linux's `struct tcp_info`, the state of the connection."""
LAST_DATA_RECEIVED = 52
"""Offset of `tcpi_last_data_recv`, an unsigned int of milliseconds, in the same."""


def main() -> None:
    """Serve until all workers are done."""
    if len(sys.argv) > 1:
        # MXNet serves outside of Python, where no KeyboardInterrupt is raised.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        threading.Thread(target=_watch, args=(float(sys.argv[1]),), daemon=True).start()
    try:
        load_cuda_libraries()
        import mxnet  # noqa: F401
    except BackendError as error:
        sys.exit(f"parallel-core: {error}")
    except Exception as error:
        if NO_PORT not in str(error):
            raise
        # ps-lite does not say which address.
        root = f"{os.environ.get('DMLC_PS_ROOT_URI')}:{os.environ.get('DMLC_PS_ROOT_PORT')}"
        sys.exit(
            f"parallel-core: cannot listen at {root}: the port is in use, or the address is not "
            "this host's"
        )


def _watch(seconds: float) -> None:
    """End the process after some seconds in which a process of the job was missing, or a server was
    sent nothing.
    """
    role, workers = os.environ["DMLC_ROLE"], int(os.environ["DMLC_NUM_WORKER"])
    # A process of ps-lite is connected to itself, too, and a server to no other server.
    expected = workers + (int(os.environ["DMLC_NUM_SERVER"]) if role == "scheduler" else 1)
    complete_at = monotonic()
    while True:
        sleep(min(1.0, seconds / 10))
        silences = _silences()
        if silences is None:
            # MXNet is still being loaded.
            complete_at = monotonic()
            continue
        connected = len(silences) - 1
        if connected >= expected:
            complete_at = monotonic()
            # Workers talk to the scheduler only when they come and go.
            if role == "scheduler" or min(silences) < seconds:
                continue
            cause = "no worker has sent anything"
        elif monotonic() < complete_at + seconds:
            continue
        else:
            cause = (
                f"{max(connected, 0)} of {expected} other processes are connected, so one "
                "ended or never came"
            )
        sys.stderr.write(
            f"parallel-core: the {role} on {socket.gethostname()} made no progress for {seconds:g} "
            f"s: {cause}\n"
        )
        sys.stderr.flush()
        os._exit(1)


def _silences() -> list[float] | None:
    """Return the seconds since data came, for each connection to this process.

    None if it does not listen yet.
    """
    ports, silences = set(), []
    for descriptor in Path("/proc/self/fd").iterdir():
        # What was closed meanwhile has no link, and what is no TCP socket no information.
        with suppress(OSError):
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(descriptor.name))) as duplicate:
                port = duplicate.getsockname()[1]
                info = duplicate.getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_INFO, LAST_DATA_RECEIVED + 4
                )
                if duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    ports.add(port)
                elif info[0] == ESTABLISHED:
                    silences.append(
                        (port, struct.unpack_from("I", info, LAST_DATA_RECEIVED)[0] / 1000)
                    )
    return [seconds for port, seconds in silences if port in ports] if ports else None


if __name__ == "__main__":
    main()
