"""Without the files and calls that only Linux has, the program measures what it can.

This is as near to macOS as Linux comes.
"""

import json
from pathlib import Path

import pytest

from tests.conftest import MEASURED, Require, RunPython

AS_ON_MACOS = """
import builtins, ctypes, errno, io, os, socket, sys

def hide_proc(module, name):
    function = getattr(module, name)

    def without_proc(path=".", *arguments, **options):
        caller = sys._getframe(1).f_globals["__name__"]
        # psutil asks macOS in other ways.
        if str(path).startswith("/proc") and not caller.startswith("psutil"):
            raise FileNotFoundError(errno.ENOENT, "hidden", path)
        return function(path, *arguments, **options)

    setattr(module, name, without_proc)

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name in ("prctl", "mallopt", "malloc_trim"):
            raise AttributeError(name)
        return super().__getattr__(name)

for module in (builtins, io):
    hide_proc(module, "open")
for name in ("listdir", "scandir", "stat"):
    hide_proc(os, name)
ctypes.CDLL = Library
del os.sched_getaffinity, os.sched_setaffinity, socket.TCP_INFO
"""


@pytest.mark.parametrize("experiment", ["parallel", "overlap"])
def test_pytorch_is_counted_and_timed(
    require: Require, run_python: RunPython, tmp_path: Path, experiment: str
) -> None:
    require("torch")
    file = tmp_path / "result.json"
    arguments = f"run {experiment} --backend torch --size 200 --rounds 1 --budget 2 --json {file}"
    run = f"sys.argv[1:] = {arguments.split()}\nfrom parallel_core.__main__ import main\nmain()"
    done = run_python(AS_ON_MACOS + run, check=False)
    assert done.returncode in MEASURED, done.stderr
    result = json.loads(file.read_text())
    assert result["counts"], result["notes"]
    assert result["cases"]
    assert result["environment"]["core_numbers"] == []
    assert result["machine_watch"]["others_share"] is not None
    assert result["machine_watch"]["waiting_share"] is None


NOT_KNOWN = """
from backends.host import core_numbers, on_cores, seconds_since_data_came, threads_named
from parallel_core.traces.profile.recorder import core_times
from parallel_core.system.machine import free_memory
from parallel_core.system.running_time import others_seconds_since, thread_times
from parallel_core.system.signals import is_pending
from parallel_core.system.subprocesses import leave_with_starter

with on_cores({0}):
    assert core_numbers() == threads_named("python") == []
assert seconds_since_data_came() is None
assert core_times() == thread_times() == {}
assert others_seconds_since({}) is None
assert free_memory() > 0
assert not is_pending(2, os.getpid())
reading, writing = os.pipe()
os.dup2(reading, 0)
leave_with_starter()
"""


def test_what_linux_alone_says_is_not_known(run_python: RunPython) -> None:
    run_python(AS_ON_MACOS + NOT_KNOWN)
