"""Be MXNet's scheduler or a server: `python -m backends.mxnet.parameter_server [SECONDS]`.

DMLC_ROLE says which. Importing MXNet then serves until all workers are done, and ends the process.
ps-lite has no deadline: if a process of the job dies, the other processes wait for ever. So with
SECONDS, a thread ends this one with status 1 after so long without progress; without, whoever
started it ends it.
"""

import os
import signal
import socket
import sys
import threading
from time import monotonic, sleep

from backends.errors import BackendError
from backends.host import seconds_since_data_came
from backends.mxnet.installation import load_cuda_libraries

NO_PORT = "bind failed"


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
    """End the process after some seconds without progress of the job.

    There is none if a process of the job is missing, or if nothing is sent to this server.
    """
    role = os.environ["DMLC_ROLE"]
    workers = int(os.environ["DMLC_NUM_WORKER"])
    # A scheduler is connected to all servers, and a server only to the scheduler.
    others = int(os.environ["DMLC_NUM_SERVER"]) if role == "scheduler" else 1
    expected = workers + others
    complete_at = monotonic()
    while True:
        sleep(min(1.0, seconds / 10))
        silences = seconds_since_data_came()
        if silences is None:
            # MXNet is still being loaded, or nothing is known.
            complete_at = monotonic()
            continue
        # A process of ps-lite is connected to itself, too.
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


if __name__ == "__main__":
    main()
