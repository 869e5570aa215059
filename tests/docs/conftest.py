"""The site, built once: as `make docs` builds it, in every language, and with frameworks that
cannot be imported.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import LANGUAGES
from tests.parallel_core.report.chromium import browser
from tests.tree import ROOT

__all__ = ["browser", "site"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built pages; a skip where Sphinx is not installed."""
    if find_spec("sphinx") is None:
        pytest.skip("Sphinx is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    absent = folder / "absent"
    absent.mkdir()
    for framework in ("mxnet", "torch"):
        (absent / f"{framework}.py").write_text(
            f"raise ModuleNotFoundError('hidden', name={framework!r})\n"
        )
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--builder",
        "html",
        "docs",
    ]
    path = os.pathsep.join(map(str, (absent, ROOT)))
    for language in ("", *LANGUAGES):
        options = ["-D", f"language={language}"] if language else []
        done = subprocess.run(
            [*command, folder / "html" / language, *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return folder / "html"
