"""Fixtures of the backends' tests: work that waits, GPUs that are synthetic or real, and a driver
without GPUs.
"""

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import backends
from backends import Backend, BackendError

Require = Callable[[str], None]
"""What the fixture `require` is: it skips a test whose framework cannot be loaded."""


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that work waits for.

    It is set after a while, so that a test that would wait for ever fails.
    """
    event = threading.Event()
    timer = threading.Timer(20, event.set)
    timer.start()
    yield event
    timer.cancel()
    event.set()


@pytest.fixture
def made_up_torch(monkeypatch: pytest.MonkeyPatch, require: Require) -> Callable[..., Any]:
    """Return a function that gives PyTorch some synthetic GPUs until the test ends.

    The function returns the synthetic `torch`.
    """
    require("torch")
    from tests.backends.torch.cuda.made_up_cuda import MadeUpTorch

    # The variable is set first, so that the value that a test leaves there is taken back.
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")

    monkeypatch.setattr("backends.torch.backend.reason_against", lambda *_: "")

    def make(gpus: int, seed: int = 0) -> Any:
        torch = MadeUpTorch(gpus, seed)
        monkeypatch.setattr("backends.torch.backend.import_framework", lambda *_, **__: torch)
        return torch

    return make


@pytest.fixture
def on_made_up_gpus(
    made_up_torch: Callable[..., Any], engine: str
) -> Callable[..., tuple[Backend, Any]]:
    """Return a function that loads PyTorch for synthetic GPUs of given names.

    The function returns the backend and the synthetic `torch.cuda`.
    """

    def load(names: str, seed: int = 0, variants: tuple[str, ...] = ()) -> tuple[Backend, Any]:
        torch = made_up_torch(2, seed)
        chosen = variants if engine == "async" else ()
        return backends.load("torch", names, "auto", engine, 1, variants=chosen), torch.cuda

    return load


@pytest.fixture
def on_gpus(engine: str) -> Callable[..., Backend]:
    """Return a function that loads a framework for devices, by name or number, with variants.

    It skips the test if there is no such GPU or variant.
    """

    def load(framework: str, devices: str | int, *variants: str) -> Backend:
        if variants and engine == "sync":
            pytest.skip("its variants are none")
        try:
            kind = "gpu" if isinstance(devices, int) else "auto"
            return backends.load(framework, devices, kind, engine, 1, variants=variants)
        except BackendError as error:
            pytest.skip(str(error))

    return load


def compile_library(library: Path, source: str, needed: Sequence[Path] = ()) -> None:
    """Compile C to a library whose soname is its file's name, and which needs other libraries.

    The test is skipped without a compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) is installed")
    library.parent.mkdir(parents=True, exist_ok=True)
    command = [
        compiler,
        "-x",
        "c",
        "-",
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{library.name}",
        "-o",
        library,
        "-x",
        "none",
    ]
    # The linker does not look for libraries that the needed ones need: they are loaded later.
    command += ["-Wl,--no-as-needed,--allow-shlib-undefined", *needed]
    subprocess.run(command, input=source, text=True, check=True)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory that holds `libcuda.so.1`, a driver that finds no GPU, and nothing else."""
    directory = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("installation") / "driver_without_gpus.c"
    compile_library(directory / "libcuda.so.1", source.read_text())
    return directory
