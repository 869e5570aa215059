"""The site, built once: as `make docs` builds it, in every language, and with frameworks that cannot be imported."""

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
        (absent / f"{framework}.py").write_text(f"raise ModuleNotFoundError('hidden', name={framework!r})\n")
    build(folder / "html", absent)
    for language in LANGUAGES:
        build(folder / "html" / language, absent, "-D", f"language={language}")
    return folder / "html"


def build(folder: Path, absent: Path, *options: str) -> None:
    """Build the site of one language."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--builder", "html", *options]
    done = subprocess.run(
        [*command, "docs", folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (absent, ROOT)))},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
