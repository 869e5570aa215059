"""Which environments `make demo` makes, by the Pythons that it finds; nothing is installed."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

IS_3_11, IS_NOT = "exit 0", "exit 1"
"""What a stand-in for a Python answers when it is asked whether it is Python 3.11."""
# What pyenv puts on the path answers so, too, if another version is chosen.
OTHERS = {"path/python3": IS_NOT, "path/python3.11": IS_NOT}
PYENV, UV = ".pyenv/versions/3.11.9/bin/python", ".local/share/uv/python/cpython-3.11.9/bin/python"
TOGETHER = {".venv": ("mxnet,torch", "python3")}
WITHOUT = {".venv": ("torch,jax", "python3")}


@pytest.mark.parametrize(
    ("pythons", "arguments", "environments"),
    [
        ({"path/python3": IS_3_11}, (), TOGETHER),
        # Beside another Python, MXNet has a 3.11 wherever it is.
        *(
            (
                {**OTHERS, place: IS_3_11},
                (),
                {**WITHOUT, ".venv-mxnet": ("mxnet,test", place.removeprefix("path/"))},
            )
            for place in ("path/python3.11", PYENV, UV)
        ),
        # Without any, the rest is installed, and MXNet stays in the comparison.
        (OTHERS, ("PYTHON_3_11=",), WITHOUT),
        # An environment that was made decides before the Python on the path.
        ({**OTHERS, ".venv/bin/python": IS_3_11}, (), TOGETHER),
    ],
)
def test_a_demonstration_makes_what_the_pythons_that_are_there_can_run(
    pythons: Mapping[str, str],
    arguments: tuple[str, ...],
    environments: object,
    root: Path,
    tmp_path: Path,
) -> None:
    for name, answer in pythons.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    shutil.copy(root / "Makefile", tmp_path)
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    # `make test PYTHON=…` hands its own variables down.
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))
    }
    own |= {"PATH": f"{tmp_path}/path:/usr/bin:/bin", "HOME": str(tmp_path)}
    command = ["make", "--no-print-directory", "--dry-run", "demo", *arguments]
    planned = subprocess.run(
        command, cwd=tmp_path, env=own, capture_output=True, text=True, check=True
    ).stdout
    extras = {name: extras for extras, name in re.findall(r"installing (\S+) into (\S+),", planned)}
    made_by = {name: python for python, name in re.findall(r"\|\| (\S+) -m venv (\S+)", planned)}
    assert {
        name: (extras[name], made_by[name].removeprefix(f"{tmp_path}/")) for name in extras
    } == environments
    compared = "mxnet,torch" if environments == TOGETHER else "mxnet,torch,jax"
    assert planned.rstrip().endswith(
        f".venv/bin/parallel-core compare --quick --backends {compared}"
    )


def test_an_environment_that_cannot_be_made_is_one_line(root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "Makefile", tmp_path)
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt", "python", ".venv"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{IS_3_11}\n")
    (tmp_path / "python").chmod(0o755)
    command = ["make", "--no-print-directory", "demo", f"PYTHON={tmp_path}/python"]
    # `make test` runs this, and what it tells its own commands is not for this one.
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False
    )
    (line,) = done.stdout.splitlines()
    assert done.returncode == 2
    assert line.startswith(f"parallel-core: cannot write to {tmp_path}/.venv")
    # What make says itself.
    assert done.stderr.count("\n") == 1
