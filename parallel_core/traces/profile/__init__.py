"""A program of the user's own under its framework's profiler: `parallel-core profile`.

Each Python process of the program imports `bootstrap/sitecustomize.py` at its start, whoever starts
it: torchrun, a worker that is spawned, a script of the shell's. The program itself runs as without
it, so that its arguments, its main module, what it pickles and how it ends stay what they are;
running it inside this process would change them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from parallel_core.traces.profile.bootstrap.sitecustomize import RECORDER

__all__ = ["profiled_step"]


@contextmanager
def profiled_step() -> Iterator[None]:
    """Mark one step of a program: `with profiled_step(): …` in its loop. A step lasts from the end
    of the one before.

    Without `parallel-core profile`, it does nothing. Programs that call an optimizer's `step`, or
    the one of their own profiler, or a trainer's, need no mark.
    """
    yield
    # The program's process has the recorder under a separate name, whatever it imports.
    if (module := sys.modules.get(RECORDER)) and (recorder := module.current()):
        recorder.mark("profiled_step")
