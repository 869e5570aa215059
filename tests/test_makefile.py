"""Which environments `make demo` makes, by the Pythons that it finds; nothing is installed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

IS_3_11, IS_NOT = "exit 0", "exit 1"
"""What a stand-in for a Python answers when it is asked whether it is Python 3.11."""
TOGETHER = {".venv": ("mxnet,torch", "python3")}
WITHOUT = {".venv": ("torch,jax", "python3")}


def stand_in(path: Path, answer: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return str(path)


def made(root: Path, folder: Path, *arguments: str) -> dict[str, tuple[str, str]]:
    """Return what `make demo` would install and with which Python, by environment, and check what it would compare."""
    shutil.copy(root / "Makefile", folder)
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        (folder / name).touch()
    # `make test PYTHON=…` hands its own variables down.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))
    }
    environment |= {"PATH": f"{folder}/path:/usr/bin:/bin", "HOME": str(folder)}
    command = ["make", "--no-print-directory", "--dry-run", "demo", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    extras = {name: extras for extras, name in re.findall(r"installing (\S+) into (\S+),", done.stdout)}
    pythons = {name: python for python, name in re.findall(r"\|\| (\S+) -m venv (\S+)", done.stdout)}
    compared = "mxnet,torch" if extras[".venv"].startswith("mxnet") else "mxnet,torch,jax"
    assert done.stdout.rstrip().endswith(f".venv/bin/parallel-core compare --quick --backends {compared}")
    return {name: (extras[name], pythons[name]) for name in extras}


def test_python_3_11_has_both_frameworks_in_one_environment(root: Path, tmp_path: Path) -> None:
    stand_in(tmp_path / "path" / "python3", IS_3_11)
    assert made(root, tmp_path) == TOGETHER


@pytest.mark.parametrize(
    "place",
    ["path/python3.11", ".pyenv/versions/3.11.9/bin/python", ".local/share/uv/python/cpython-3.11.9/bin/python"],
)
def test_beside_another_python_mxnet_has_a_3_11_wherever_it_is(root: Path, tmp_path: Path, place: str) -> None:
    stand_in(tmp_path / "path" / "python3", IS_NOT)
    # What pyenv puts on the path answers so if another version is chosen.
    stand_in(tmp_path / "path" / "python3.11", IS_NOT)
    found = stand_in(tmp_path / place, IS_3_11)
    name = "python3.11" if place.startswith("path") else found
    assert made(root, tmp_path) == {**WITHOUT, ".venv-mxnet": ("mxnet,test", name)}


def test_without_any_3_11_the_rest_is_installed_and_mxnet_stays_in_the_comparison(root: Path, tmp_path: Path) -> None:
    stand_in(tmp_path / "path" / "python3", IS_NOT)
    assert made(root, tmp_path, "PYTHON_3_11=") == WITHOUT


def test_an_environment_that_was_made_decides_before_the_python_on_the_path(root: Path, tmp_path: Path) -> None:
    stand_in(tmp_path / "path" / "python3", IS_NOT)
    stand_in(tmp_path / ".venv" / "bin" / "python", IS_3_11)
    assert made(root, tmp_path) == TOGETHER
