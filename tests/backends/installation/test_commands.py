"""Commands that install parallel-core: in a checkout from its files, else from its name."""

import shlex
from pathlib import Path

import pytest

from backends.installation.frameworks import install_command, separate_environment
from tests.tree import ROOT


@pytest.mark.parametrize("folder", ["lab", "the lab"])
def test_a_checkout_is_installed_from_its_files(tmp_path: Path, folder: str) -> None:
    root = tmp_path / folder
    root.mkdir()
    assert shlex.split(install_command("jax", root=root)) == ["pip", "install", "parallel-core[jax]"]
    (root / "setup.cfg").touch()
    assert shlex.split(install_command("jax", root=root)) == ["pip", "install", "-e", f"{root}[jax]"]
    assert shlex.split(install_command("jax", "--upgrade", root))[2:] == ["--upgrade", "-e", f"{root}[jax]"]
    # No Makefile makes one there.
    name, command = separate_environment("jax", root=root)
    assert (name, shlex.split(command)[:5]) == ("jax-alone", ["python3", "-m", "venv", "jax-alone", "&&"])
    assert shlex.split(command)[5:] == ["jax-alone/bin/pip", *shlex.split(install_command("jax", root=root))[1:]]


def test_the_makefile_makes_the_environment_for_jax() -> None:
    name, command = separate_environment("jax", root=ROOT)
    assert (name, shlex.split(command)) == (f"{ROOT}/.venv-jax", ["make", "-C", str(ROOT), ".venv-jax/ready"])
    assert "$(JAX)/ready:" in (ROOT / "Makefile").read_text()
    assert separate_environment("torch", root=ROOT)[0] == "torch-alone"
