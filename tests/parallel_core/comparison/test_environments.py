"""A backend that is not installed here runs on the Python of an environment beside the sources, if one has it."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from parallel_core.comparison.environments import python_with
from tests.conftest import FRAMEWORKS


def environment(folder: Path, *frameworks: str) -> str:
    for name in frameworks:
        (folder / "lib" / "python3.13" / "site-packages" / name).mkdir(parents=True)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    python.touch()
    return str(python)


@pytest.fixture
def absent() -> str:
    """A framework that is not installed here."""
    names = [name for name in FRAMEWORKS if find_spec(name) is None]
    return names[0] if names else pytest.skip("all frameworks are installed here")


def test_an_environment_of_its_own_goes_before_the_common_one(absent: str, tmp_path: Path) -> None:
    assert python_with(absent, tmp_path) == sys.executable
    common = environment(tmp_path / ".venv", absent)
    assert python_with(absent, tmp_path) == common
    own = environment(tmp_path / f".venv-{absent}")
    assert python_with(absent, tmp_path) == common, "what is half made has no framework"
    assert environment(tmp_path / f".venv-{absent}", absent) == own
    assert python_with(absent, tmp_path) == own
    log = tmp_path / f".venv-{absent}" / "ready.log"
    log.touch()
    assert python_with(absent, tmp_path) == common, "make has begun it and not finished"
    log.with_name("ready").touch()
    assert python_with(absent, tmp_path) == own


def test_what_is_installed_here_or_nowhere_runs_here(tmp_path: Path) -> None:
    here = [name for name in FRAMEWORKS if find_spec(name) is not None]
    environment(tmp_path / ".venv", *here, "numpy")
    assert {python_with(name, tmp_path) for name in (*here, "numpy", "a-plug-in")} == {sys.executable}
