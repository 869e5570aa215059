"""`parallel-core` and `python -m parallel_core`: run the command line, if `backends` is ours.

`python -m` looks for packages in the current folder first, and a user may have such a folder there.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

OURS = Path(__file__).resolve().parents[1] / "backends"


def main() -> None:
    """Run the command line with this process's arguments, and exit.

    The status is 2 if another package `backends` would be imported.
    """
    spec = find_spec("backends")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).resolve().parent
        if folder != OURS:
            sys.stderr.write(
                f"parallel-core: Python finds {folder} in place of parallel-core's own {OURS}: "
                "start `parallel-core`, not `python -m parallel_core`, or work in another folder\n"
            )
            sys.exit(2)
    # This imports `backends`.
    from parallel_core.command_line import program

    program.main()


if __name__ == "__main__":
    main()
