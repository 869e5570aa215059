"""The cheat sheet's rows run on each framework that is installed, and each setting changes what it
says; what needs a GPU must at least be Python. The five steps away from MXNet keep the losses.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tree import ROOT

START = {
    "mxnet": """
import mxnet as mx, numpy
from mxnet import autograd, gluon, np, npx
npx.set_np()
x, y, z = (np.ones((4, 4)) for _ in range(3))
x.attach_grad()
net = gluon.nn.Dense(4)
net.initialize()
with autograd.record():
    outputs = net(x)
outputs.backward()
""",
    "torch": """
import torch
x, y, z = (torch.ones(4, 4) for _ in range(3))
x.requires_grad_()
net = torch.nn.Linear(4, 4)
# Its only device beside the CPU where there is no accelerator: it has shapes and no values.
device, devices = torch.device("cpu"), [torch.device("cpu"), torch.device("meta")]
""",
    "jax": """
import jax, numpy
import jax.numpy as jnp
x, y, z = (jnp.ones((4, 4)) for _ in range(3))
device, folder = jax.devices()[1], "trace"
""",
    "ours": """
import numpy, backends
backend = backends.load("torch", devices=2)
devices = backend.devices
device, numpy_x = devices[1], numpy.ones((4, 4), dtype=numpy.float32)
x, y = (backend.asarray(numpy_x, devices[0]) for _ in range(2))
z = backend.asarray(numpy_x, device)
arrays = [y, z]
loss = lambda parameters: parameters[0]
""",
}
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    # torch.distributed joins a group of one, at any free port.
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
    "RANK": "0",
    "WORLD_SIZE": "1",
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


def code_of(framework: str, *sections: str) -> list[str]:
    """Return what stands in a framework's column."""
    column = COLUMNS[framework]
    cells = (row[column] for name in sections for row in tables()[name][2:] if column < len(row))
    return [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]


def run(program: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a program in a separate process, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{program}\n{done.stderr}"
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("framework", START)
def test_every_row_runs(framework: str, tmp_path: Path, require: Callable[[str], None]) -> None:
    if framework in FRAMEWORKS:
        require(framework)
    codes = [
        code for code in code_of(framework, "Verbs", "Hidden blockers") if not needs_more(code)
    ]
    program = START[framework] + "".join(f"\n{code}\n" for code in codes)
    # What stands at the end is that a batch's parts lie on both devices.
    (divide,) = (
        row[COLUMNS[framework]].strip("`")
        for row in tables()["Verbs"]
        if row[0] == "Divide a batch"
    )
    program += (
        f"\nplaces = {{{PLACE[framework]} for part in {divide}}}\nassert len(places) == 2, places\n"
    )
    if framework == "ours" and find_spec("torch") is None:
        program = program.replace('"torch"', '"jax"')
    run(program, tmp_path, ENVIRONMENT)


def needs_more(code: str) -> bool:
    """Return whether code needs a GPU, several programs at once, or the command line."""
    words = ("cuda", "CUDA", "stream", "event", "psum", "shard_map", "--trace")
    return any(word in code for word in words)


THREADS = """
import os

def threads():
    return [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
"""
NEW_THREADS_OF_A_DEVICE = f"""{THREADS}
import mxnet as mx
from mxnet import np, npx
npx.set_np()

def multiply(device):
    x = np.ones((300, 300), ctx=device)
    np.dot(x, x).wait_to_read()

multiply(mx.cpu(0))
before = len(threads())
multiply(mx.cpu(1))
print(len(threads()) - before)
"""
NEW_THREADS_OF_PYTORCH = f"""{THREADS}
import torch
SETTING
before = len(threads())
x = torch.ones(1000, 1000)
x @ x
print(len(threads()) - before)
"""
START_OF_JAX = f"""{THREADS}
import jax, jax.numpy as jnp
SETTING
multiply = jax.jit(lambda x: x @ x)
large, small = jnp.ones((1500, 1500)), jnp.ones((2, 2))
multiply(large).block_until_ready(), multiply(small).block_until_ready()
"""
XLA_THREADS = f'{START_OF_JAX}\nprint(sum("XLA" in name for name in threads()))'


@dataclass(frozen=True)
class Effect:
    """What a program prints with a cell of the table of settings, and what it prints with another
    setting in its place: none, if the cell says that there is none.
    """

    framework: str
    setting: str
    program: str
    prints: str
    instead: str = ""
    prints_instead: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


ONE_THREAD = {"OMP_NUM_THREADS": "1"}
EFFECTS = (
    Effect(
        "mxnet",
        "MXNET_ENGINE_TYPE=NaiveEngine",
        NEW_THREADS_OF_A_DEVICE,
        prints="0",
        instead="MXNET_ENGINE_TYPE=ThreadedEnginePerDevice",
        prints_instead="1",
        environment=ONE_THREAD,
    ),
    Effect(
        "mxnet",
        "MXNET_CPU_WORKER_NTHREADS=2",
        NEW_THREADS_OF_A_DEVICE,
        prints="2",
        instead="MXNET_CPU_WORKER_NTHREADS=1",
        prints_instead="1",
        environment=ONE_THREAD,
    ),
    Effect(
        "mxnet",
        "OMP_NUM_THREADS=1",
        NEW_THREADS_OF_A_DEVICE,
        prints="1",
        instead="OMP_NUM_THREADS=2",
        prints_instead="2",
    ),
    Effect("mxnet", "mx.cpu(1)", NEW_THREADS_OF_A_DEVICE, prints="1", environment=ONE_THREAD),
    Effect(
        "torch",
        "torch.set_num_threads(1)",
        NEW_THREADS_OF_PYTORCH,
        prints="0",
        instead="torch.set_num_threads(2)",
        prints_instead="1",
    ),
    Effect(
        "torch",
        'torch.device("cpu", 1)',
        "import torch\nprint(torch.ones(1, device=SETTING).device)",
        prints="cpu",
    ),
    Effect(
        "jax",
        'jax.config.update("jax_cpu_enable_async_dispatch", False)',
        f"{START_OF_JAX}\nprint(all([multiply(large).is_ready() for _ in range(10)]))",
        prints="True",
        instead="pass",
        prints_instead="False",
    ),
    Effect(
        "jax",
        "one program at a time",
        f"{START_OF_JAX.replace('SETTING', '')}\n"
        "first, second = multiply(large), multiply(small)\n"
        "second.block_until_ready()\n"
        "print(first.is_ready())",
        prints="True",
    ),
    Effect("jax", "NPROC=1", XLA_THREADS, prints="1", instead="NPROC=2", prints_instead="2"),
    Effect(
        "jax",
        "XLA_FLAGS=--xla_force_host_platform_device_count=2",
        f"{START_OF_JAX}\nprint(len(jax.devices()))",
        prints="2",
        instead="pass",
        prints_instead="1",
    ),
)
"""What each setting changes, seen in threads, order or devices, never in times."""


def with_setting(effect: Effect, setting: str, folder: Path) -> str:
    """Run an effect's program with a setting: a call, or a variable, which JAX reads late."""
    environment = dict(effect.environment)
    name, is_variable, value = setting.partition("=")
    if not (is_variable and SETTING.fullmatch(setting)):
        call = setting
    elif effect.framework == "jax":
        call = f"os.environ[{name!r}] = {value!r}"
    else:
        environment[name] = value
        call = ""
    return run(effect.program.replace("SETTING", call), folder, environment).strip()


@pytest.mark.long
@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.setting)
def test_a_setting_changes_what_it_says(
    effect: Effect, tmp_path: Path, require: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    require(effect.framework)
    for name in ("NPROC", "PJRT_NPROC", "XLA_FLAGS", "OMP_NUM_THREADS", "MXNET_ENGINE_TYPE"):
        monkeypatch.delenv(name, raising=False)
    assert with_setting(effect, effect.setting, tmp_path) == effect.prints
    if effect.instead:
        assert with_setting(effect, effect.instead, tmp_path) == effect.prints_instead


def test_every_cell_of_the_settings_has_an_effect_or_needs_a_gpu() -> None:
    for row in tables()["Settings"][2:]:
        for framework in FRAMEWORKS:
            cell = row[COLUMNS[framework]]
            settings = [effect.setting for effect in EFFECTS if effect.framework == framework]
            assert needs_more(cell) or any(setting in cell for setting in settings), cell


def test_what_needs_a_gpu_is_python() -> None:
    for framework in START:
        for code in code_of(framework, "Verbs", "Hidden blockers", "Settings"):
            if not SETTING.fullmatch(code) and not code.startswith("--"):
                ast.parse(code)


@pytest.mark.long
def test_the_five_steps_away_from_mxnet_keep_the_losses(
    tmp_path: Path, require: Callable[[str], None]
) -> None:
    require("mxnet")
    require("torch")
    page = (ROOT / "docs/how-to/leave-mxnet.md").read_text()
    blocks = re.findall(r"^```python\n# ([^\n]+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for program in ("gluon.py", "ddp.py"):
        codes = [code for programs, code in blocks if program in programs]
        assert len(codes) > 4
        (tmp_path / program).write_text("\n".join(codes))
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    for words in (("gluon.py",), (*torchrun, "ddp.py")):
        # The second program compares the losses.
        subprocess.run([sys.executable, *words], cwd=tmp_path, check=True, timeout=300)
