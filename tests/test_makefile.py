"""Which environments `make demo` makes, by the Pythons that it finds, and which tests `make check`
runs; nothing is installed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tree import nearest_tests

IS_3_11, IS_ANOTHER = "exit 0", "exit 1"
"""What a stand-in for a Python answers when it is asked whether it is Python 3.11."""
# What pyenv puts on the path answers so, too, if another version is chosen.
OTHER_PYTHONS = {"path/python3": IS_ANOTHER, "path/python3.11": IS_ANOTHER}
PYENV = ".pyenv/versions/3.11.9/bin/python"
UV = ".local/share/uv/python/cpython-3.11.9/bin/python"


class Environment(NamedTuple):
    """What an environment holds, and the Python that makes it."""

    extras: str
    python: str


WITH_MXNET = {".venv": Environment("mxnet,torch", "python3")}
WITHOUT_MXNET = {".venv": Environment("torch,jax", "python3")}


def beside_another_python(mxnet_python: str) -> dict[str, Environment]:
    """Return the environments where MXNet has a Python of its own."""
    return {**WITHOUT_MXNET, ".venv-mxnet": Environment("mxnet,test", mxnet_python)}


def make_demo(
    root: Path, folder: Path, *arguments: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run `make demo` in a folder that holds the Makefile, and files in place of those it names."""
    shutil.copy(root / "Makefile", folder)
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        (folder / name).touch()
    # `make test` hands variables of its own down, which are not for the commands that tests start.
    prefixes = ("MAKE", "MFLAGS", "PYTHON")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return subprocess.run(
        ["make", "--no-print-directory", "demo", *arguments],
        cwd=folder,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def write_program(path: Path, answer: str) -> None:
    """Write a program that answers with a status."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("pythons", "arguments", "environments"),
    [
        ({"path/python3": IS_3_11}, (), WITH_MXNET),
        # Beside another Python, MXNet has a 3.11 wherever it is.
        (
            {**OTHER_PYTHONS, "path/python3.11": IS_3_11},
            (),
            beside_another_python("python3.11"),
        ),
        ({**OTHER_PYTHONS, PYENV: IS_3_11}, (), beside_another_python(PYENV)),
        ({**OTHER_PYTHONS, UV: IS_3_11}, (), beside_another_python(UV)),
        # Without any, the rest is installed, and MXNet stays in the comparison.
        (OTHER_PYTHONS, ("PYTHON_3_11=",), WITHOUT_MXNET),
        # An environment that was made decides before the Python on the path.
        ({**OTHER_PYTHONS, ".venv/bin/python": IS_3_11}, (), WITH_MXNET),
    ],
)
def test_a_demonstration_makes_what_the_pythons_that_are_there_can_run(
    pythons: Mapping[str, str],
    arguments: tuple[str, ...],
    environments: Mapping[str, Environment],
    root: Path,
    tmp_path: Path,
) -> None:
    for name, answer in pythons.items():
        write_program(tmp_path / name, answer)
    path = {"PATH": f"{tmp_path}/path:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = make_demo(root, tmp_path, "--dry-run", *arguments, **path)
    assert done.returncode == 0, done.stderr
    commands = done.stdout
    extras_and_folders = re.findall(r"installing (\S+) into (\S+),", commands)
    pythons_and_folders = re.findall(r"\|\| (\S+) -m venv (\S+)", commands)
    python_of = {folder: python for python, folder in pythons_and_folders}
    planned = {
        folder: Environment(extras, python_of[folder].removeprefix(f"{tmp_path}/"))
        for extras, folder in extras_and_folders
    }
    assert planned == environments
    frameworks = "mxnet,torch" if environments == WITH_MXNET else "mxnet,torch,jax"
    compare = f".venv/bin/parallel-core compare --quick --backends {frameworks}"
    assert commands.rstrip().endswith(compare)


def test_an_environment_that_cannot_be_made_is_one_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / ".venv").touch()
    write_program(tmp_path / "python", IS_3_11)
    done = make_demo(root, tmp_path, f"PYTHON={tmp_path}/python")
    (line,) = done.stdout.splitlines()
    assert done.returncode == 2
    assert line.startswith(f"parallel-core: cannot write to {tmp_path}/.venv")
    # What make says itself.
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("parallel_core/terminal/trace.py", "tests/parallel_core/terminal/test_trace.py"),
        ("backends/protocol.py", "tests/backends/protocol"),
        ("parallel_core/system/files.py", "tests/parallel_core/system"),
        ("parallel_core/report/plots/series.py", "tests/parallel_core/report/plots"),
        ("parallel_core/__main__.py", "tests/parallel_core"),
        ("tests/test_makefile.py", "tests/test_makefile.py"),
    ],
)
def test_the_tests_of_a_module_are_those_nearest_to_its_name(module: str, tests: str) -> None:
    assert nearest_tests(Path(module)) == Path(tests)
