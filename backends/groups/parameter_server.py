"""Be one of ps-lite's own processes, MXNet's scheduler or a server: `python -m backends.groups.parameter_server`.

DMLC_ROLE says which. Importing MXNet then serves until all workers are done, and ends the process.
"""

import os
import threading

__all__ = ["main"]


def main() -> None:
    """Serve; leave at once where standard input ends, for then whoever started this process is gone."""
    threading.Thread(target=_leave_with_starter, daemon=True).start()
    import mxnet  # noqa: F401


def _leave_with_starter() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
