"""Be one of ps-lite's own processes, MXNet's scheduler or a server: `python -m backends.mxnet.parameter_server`.

DMLC_ROLE says which. Importing MXNet then serves until all workers are done, and ends the process.
"""

import os
import sys
import threading

from backends.errors import BackendError
from backends.installation.cuda_libraries import load_cuda_libraries

__all__ = ["main"]

NO_PORT = "bind failed"


def main() -> None:
    """Serve; leave at once where standard input ends, for then whoever started this process is gone."""
    threading.Thread(target=_leave_with_starter, daemon=True).start()
    try:
        load_cuda_libraries()
        import mxnet  # noqa: F401
    except BackendError as error:
        sys.exit(str(error))
    except Exception as error:
        if NO_PORT not in str(error):
            raise
        # ps-lite does not say where.
        where = f"{os.environ.get('DMLC_PS_ROOT_URI')}:{os.environ.get('DMLC_PS_ROOT_PORT')}"
        sys.exit(f"cannot listen at {where}: the port is in use, or the address is not this host's")


def _leave_with_starter() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
