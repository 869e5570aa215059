"""Authors of backends name theirs on pytest's command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.registry.test_loading import plug_in

COPYING_NOTHING = """
from backends.numpy.backend import NumPyBackend

def load(*arguments):
    backend = NumPyBackend(*arguments)
    backend.copy_to = lambda x, device, out=None: x
    return backend
"""


@pytest.mark.long
def test_each_backend_that_is_named_is_a_test_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(COPYING_NOTHING)
    plug_in(tmp_path, "author", "mine = mine:load")
    named = ("--conformance", "numpy:sync", "--conformance", "mine", "--conformance-programs", "40")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "backends.conformance.plugin", *named]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "conformance[mine]" in done.stdout
    assert "load('mine', " in done.stdout
    assert "Traceback" not in done.stdout
