"""Every row of the cheat sheet runs on each framework that is installed; what needs a GPU must at
least be Python.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tree import ROOT

START = {
    "mxnet": """
import mxnet as mx, numpy
from mxnet import autograd, gluon, np, npx
npx.set_np()
SETTINGS
x, y, z = (np.ones((4, 4)) for _ in range(3))
x.attach_grad()
store = mx.kv.create("device")
store.init("gradient", y)
""",
    "torch": """
import os, torch
SETTINGS
x, y, z = (torch.ones(4, 4) for _ in range(3))
x.requires_grad_()
# Its only device beside the CPU where there is no accelerator: it has shapes and no values.
device, devices = torch.device("cpu"), [torch.device("cpu"), torch.device("meta")]
where = f"file://{os.path.abspath('rendezvous')}"
torch.distributed.init_process_group("gloo", init_method=where, rank=0, world_size=1)
""",
    "jax": """
import jax, numpy
import jax.numpy as jnp
SETTINGS
x, y, z = (jnp.ones((4, 4)) for _ in range(3))
devices, folder = jax.devices(), "trace"
device = devices[1]
""",
    "ours": """
import numpy, backends
from importlib.util import find_spec
SETTINGS
backend = backends.load("torch" if find_spec("torch") else "jax", devices=2)
devices = backend.devices
device, numpy_x = devices[1], numpy.ones((4, 4), dtype=numpy.float32)
x, y = (backend.asarray(numpy_x, devices[0]) for _ in range(2))
z = backend.asarray(numpy_x, device)
arrays = [y, z]
loss = lambda parameters: parameters[0]
""",
}
FRAMEWORKS = ("mxnet", "torch", "jax")
COLUMNS = {"mxnet": 1, "torch": 2, "jax": 3, "ours": 4}
PLACE = {
    "mxnet": "part.ctx",
    "torch": "part.device",
    "jax": "next(iter(part.devices()))",
    "ours": "backend.device_of(part)",
}
"""The device of a `part` of a batch."""
SETTING = re.compile(r"[A-Z][A-Z_]+=\S+")


def tables() -> dict[str, list[list[str]]]:
    """Return the rows of each section's table, the heading first."""
    page = (ROOT / "docs/start/cheat-sheet.md").read_text()
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")[1:]}
    return {
        name: [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in part.splitlines()
            if line[:1] == "|"
        ]
        for name, part in sections.items()
    }


def code_of(
    framework: str, sections: tuple[str, ...] = ("Verbs", "Hidden blockers", "Settings")
) -> list[str]:
    """Return what stands in a framework's column."""
    column = COLUMNS[framework]
    cells = (row[column] for name in sections for row in tables()[name][2:] if column < len(row))
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.long
@pytest.mark.parametrize("framework", START)
def test_every_row_runs_with_every_setting(
    framework: str, tmp_path: Path, require: Callable[[str], None]
) -> None:
    if framework in FRAMEWORKS:
        require(framework)
    settings = dict(
        code.split("=", 1) for code in code_of(framework, ("Settings",)) if SETTING.fullmatch(code)
    )
    runs = [
        code for code in code_of(framework, ("Verbs", "Hidden blockers")) if not needs_more(code)
    ]
    program = start(framework) + "".join(f"\n{code}\n" for code in runs)
    # What stands at the end is that a batch's parts lie on both devices.
    (divide,) = (
        row[COLUMNS[framework]].strip("`")
        for row in tables()["Verbs"]
        if row[0] == "Divide a batch"
    )
    program += (
        f"\nplaces = {{{PLACE[framework]} for part in {divide}}}\nassert len(places) == 2, places\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{program}\n{done.stderr}"


def needs_more(code: str) -> bool:
    """Return whether code needs a GPU, several programs at once, or the command line."""
    return any(
        word in code
        for word in (
            "cuda",
            "stream",
            "event",
            "psum",
            "shard_map",
            "workers_per_device",
            "--trace",
        )
    )


def start(framework: str) -> str:
    """Return what makes the arrays that the rows name, after the calls that stand among the
    settings.
    """
    calls = [
        code
        for code in code_of(framework, ("Settings",))
        if not SETTING.fullmatch(code) and not needs_more(code)
    ]
    return START[framework].replace("SETTINGS", "\n".join(calls))


def test_what_needs_a_gpu_is_python() -> None:
    for code in (code for framework in START for code in code_of(framework)):
        if not SETTING.fullmatch(code) and not code.startswith("--"):
            ast.parse(code)


def test_every_row_says_something_of_every_framework() -> None:
    for rows in tables().values():
        assert all(len(row) == len(rows[0]) and all(row) for row in rows[2:])
