"""Frameworks that fail in a chosen way: folders of stubs that come before the real ones on
PYTHONPATH.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BLOCKS = "import time\ntime.sleep(600)\n"
DIES = "import os, sys\nsys.stderr.write({said!r})\nsys.stderr.flush()\nos.abort()\n"
# Python imports this module first of all, in every process.
HIDDEN = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"

MakeStub = Callable[[str, str], None]


DECLARES = """
from backends.installation.frameworks import Diagnosis, Installation
from backends.registry import Offer

OFFER = Offer("own:Own", installation="own_installation:INSTALLATION")
INSTALLATION = Installation(
    module={module!r},
    engines=("sync",),
    absent=lambda python: Diagnosis("own is nowhere", "make own"),
    known_failures={{"it is (.*)": lambda match: Diagnosis(f"own is {{match[1]}}", "mend own")}},
)
"""


def make_plug_in(make_stub: MakeStub, module: str = "", code: str = "") -> None:
    """Install a backend called `own`, which computes with NumPy.

    With `module`, the framework that it imports, it declares its installation. `code` is run before
    it is made.
    """
    make_stub("own", f"{code}\nfrom backends.numpy.backend import NumPyBackend as Own")
    make_stub("own-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    # Another test's has the same name.
    sys.modules.pop("own_installation", None)
    make_stub("own_installation", DECLARES.format(module=module))
    entry = "own_installation:OFFER" if module else "own:Own"
    make_stub("own-1.0.dist-info/entry_points.txt", f"[parallel_core.backends]\nown = {entry}\n")


@pytest.fixture
def make_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeStub:
    """Return a function (name, code) that puts a module before all others, here and in processes
    that are started.
    """
    folder = tmp_path / "stubs"
    folder.mkdir()
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    )
    monkeypatch.syspath_prepend(str(folder))

    def make(name: str, code: str) -> None:
        path = folder / name
        # A path with folders is taken as it is: the metadata of a distribution, say.
        path = path if "/" in name else path.with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)

    return make
