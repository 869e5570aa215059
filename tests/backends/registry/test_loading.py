"""Backends are found by name and loaded when asked for; what cannot be had is said in one line."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copy

import pytest

import backends
from backends import BackendError
from backends.installation.frameworks import diagnose_absence
from backends.registry import title
from tests.conftest import FRAMEWORKS, RunPython


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "tensorflow"}, r"unknown backend 'tensorflow' \(known: jax, mxnet, numpy, torch\)"),
        ({"name": "numpy", "devices": 0}, "at least 1 device, not 0"),
        ({"name": "numpy", "device_kind": "tpu"}, r"unknown device kind 'tpu' \(known: auto, cpu, gpu\)"),
        ({"name": "numpy", "engine": "lazy"}, r"unknown engine 'lazy' \(known: async, sync\)"),
        ({"name": "numpy", "engine": "async"}, "no async engine: use --engine sync"),
        ({"name": "numpy", "device_kind": "gpu"}, "finds 0 GPUs"),
        ({"name": "numpy", "threads_per_device": 0}, "at least 1 thread, not 0"),
    ],
)
def test_bad_requests_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(BackendError, match=message):
        backends.load(**arguments)  # type: ignore[arg-type]


def test_more_gpus_than_exist_are_refused(require: Callable[[str], None], framework_name: str) -> None:
    require(framework_name)
    with pytest.raises(BackendError, match=rf"{framework_name} finds \d+ GPUs, fewer than the 99 asked for"):
        backends.load(framework_name, 99, "gpu", "async", 1)


@pytest.fixture
def refusal(run_python: RunPython) -> Callable[..., str]:
    """Load a backend in a process after some code; return what is printed of its refusal."""

    def load(arguments: str, before: str = "", **environment: str) -> str:
        code = f"""
{before}
import backends
try:
    print(backends.load({arguments}))
except backends.BackendError as error:
    print(error)
"""
        return run_python(code, **environment).stdout

    return load


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_that_is_not_installed_is_said_with_what_to_do(refusal: Callable[..., str], name: str) -> None:
    said = refusal(f"{name!r}", f"import sys; sys.modules[{name!r}] = None")
    assert said == f"{diagnose_absence(name)}\n"


def test_a_framework_that_breaks_at_import_is_said_with_its_reason(refusal: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "mxnet.py").write_text("import numpy\nnumpy.bool_that_is_gone\n")
    at_exit = "import atexit, os; atexit.register(lambda: print(os.environ.get('MXNET_ENGINE_TYPE')))"
    reason, variable = refusal("'mxnet', engine='sync'", at_exit, PYTHONPATH=str(tmp_path)).splitlines()
    assert "mxnet cannot be imported (AttributeError:" in reason
    assert "needs Python < 3.12 and numpy < 1.24" in reason
    assert variable == "None"


IMPORT_MXNET = """
from backends.installation.cuda_libraries import load_cuda_libraries
load_cuda_libraries()
import mxnet
"""


@pytest.mark.parametrize(
    ("before", "engine", "needs"),
    [
        (IMPORT_MXNET, "sync", "MXNET_ENGINE_TYPE=unset, and this backend needs NaiveEngine: start a fresh process"),
        (
            "import backends; backends.load('mxnet', engine='sync')",
            "async",
            "=NaiveEngine, and this backend needs unset",
        ),
    ],
    ids=["imported before", "loaded before"],
)
def test_a_framework_imported_with_other_settings_is_refused(
    require: Callable[[str], None], refusal: Callable[..., str], before: str, engine: str, needs: str
) -> None:
    require("mxnet")
    said = refusal(f"'mxnet', engine={engine!r}", before)
    assert "mxnet is already imported with MXNET_ENGINE_TYPE=" in said
    assert needs in said


def plug_in(folder: Path, distribution: str, entry: str) -> None:
    metadata = folder / f"{distribution}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[parallel_core.backends]\n{entry}\n")


@pytest.mark.parametrize(
    ("entry", "code", "arguments", "said"),
    [
        (
            "mine = plug_in:load",
            "load = lambda *given: given",
            "'mine', 3, 'cpu', 'sync', 2",
            "(3, 'cpu', 'sync', 2)\n",
        ),
        ("numpy = plug_in:load", "", "'numpy'", "two backends are called 'numpy'"),
        (
            "mine = plug_in:offer",
            "from backends.registry import Offer\noffer = Offer('plug_in:load')",
            "'mine'",
            "plug_in:offer, the entry point of 'mine', cannot be called: an Offer's name is in capitals\n",
        ),
    ],
)
def test_a_plug_in_is_found_by_its_entry_point(
    refusal: Callable[..., str], tmp_path: Path, entry: str, code: str, arguments: str, said: str
) -> None:
    plug_in(tmp_path, "plug-in", entry)
    (tmp_path / "plug_in.py").write_text(code)
    assert refusal(arguments, PYTHONPATH=str(tmp_path)).startswith(said)


def test_a_plug_in_written_against_the_protocol_runs_an_experiment(run_python: RunPython, tmp_path: Path) -> None:
    plug_in(tmp_path, "mine", "mine = mine.backend:MineBackend")
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").touch()
    copy(Path(__file__).parent.parent / "plug_in.py", package / "backend.py")
    done = run_python(
        """
import json, sys
import backends
from parallel_core.command_line import cli
mine = backends.load("mine", 3)
assert type(mine).__module__ == "mine.backend" and len(mine.devices) == 3
assert backends.registry.class_of("mine", "sync", ["cpu"]) == "mine.backend:MineBackend"
cli(["run", "parallel", "--backend", "mine", "--size", "100", "--rounds", "2", "--json", "-"])
""",
        PYTHONPATH=str(tmp_path),
    )
    result = json.loads(done.stdout)
    assert (result["backend"]["name"], result["backend"]["devices"]) == ("mine", ["cpu:1", "cpu:2"])
    assert result["metrics"]["parallel_speedup"] > 0


def test_torch_and_mxnet_are_not_silently_the_same(require: Callable[[str], None]) -> None:
    for name in ("torch", "mxnet"):
        require(name)
    loaded = [backends.load(name, 1, "cpu", "async", 1) for name in ("torch", "mxnet")]
    modules = [backend.ops.matmul.__module__ for backend in loaded]
    assert modules == ["backends.torch.ops", "backends.mxnet.ops"]
    assert [backend.version for backend in loaded] == [sys.modules[name].__version__ for name in ("torch", "mxnet")]


LOADED_TWICE = """
import backends
from threadpoolctl import ThreadpoolController

def threads():
    libraries = ThreadpoolController().lib_controllers
    return {{library.num_threads for library in libraries if {library}}}

first = backends.load({name!r}, 1, "cpu", "sync", 2)
before = threads(), first.threads_per_device
second = backends.load({name!r}, 1, "cpu", {engine!r}, 1)
print(before, (threads(), first.threads_per_device, second.threads_per_device))
"""


@pytest.mark.parametrize(
    ("name", "engine", "library"),
    [
        ("numpy", "sync", "'numpy.libs' in library.filepath"),
        ("torch", "sync", "library.user_api == 'openmp'"),
        ("torch", "async", "library.user_api == 'openmp'"),
    ],
)
def test_a_synchronous_backend_says_how_many_threads_a_later_load_has_left_it(
    require: Callable[[str], None], run_python: RunPython, name: str, engine: str, library: str
) -> None:
    require(name)
    done = run_python(LOADED_TWICE.format(name=name, engine=engine, library=library))
    assert done.stdout == "({2}, 2) ({1}, 1, 1)\n"


def test_readers_know_each_framework_by_its_own_name_and_others_by_that_of_the_option() -> None:
    titles = {"jax": "JAX", "mxnet": "MXNet", "numpy": "NumPy", "torch": "PyTorch"}
    assert {name: title(name) for name in backends.names() if name in titles} == titles
    assert title("mine") == "mine"
