"""Frameworks that fail in a chosen way: folders of stubs that come before the real ones on PYTHONPATH."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["BLOCKS", "DIES", "HIDDEN", "MakeStub", "make_stub"]

BLOCKS = "import time\ntime.sleep(600)\n"
DIES = "import os, sys\nsys.stderr.write({said!r})\nsys.stderr.flush()\nos.abort()\n"
# Python imports this module first of all, in every process.
HIDDEN = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"

MakeStub = Callable[[str, str], None]


@pytest.fixture
def make_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeStub:
    """Return a function (name, code) that puts a module before all others, in this process and those it starts."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))
    monkeypatch.syspath_prepend(str(folder))

    def make(name: str, code: str) -> None:
        (folder / f"{name}.py").write_text(code)

    return make
