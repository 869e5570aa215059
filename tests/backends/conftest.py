"""Fixtures of the tests of scheduling."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import backends
from backends import Backend, BackendError
from tests.conftest import reason_against


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that work waits for; it is set after a while, so that a test that would wait for ever fails."""
    event = threading.Event()
    timer = threading.Timer(20, event.set)
    timer.start()
    yield event
    timer.cancel()
    event.set()


@pytest.fixture
def on_made_up_gpus(monkeypatch: pytest.MonkeyPatch, engine: str) -> Callable[..., tuple[Backend, Any]]:
    """Return a function that loads PyTorch for synthetic GPUs of given names, and returns their CUDA as well."""
    if reason := reason_against("torch"):
        pytest.skip(f"torch cannot be imported: {reason}")
    from tests.backends.torch.cuda.made_up_cuda import MadeUpTorch

    def load(names: str, seed: int = 0, variants: tuple[str, ...] = ()) -> tuple[Backend, Any]:
        torch = MadeUpTorch(2, seed)
        with monkeypatch.context() as patched:
            patched.setattr("backends.torch.backend.import_framework", lambda *_, **__: torch)
            patched.setattr("backends.torch.backend.reason_against", lambda *_: "")
            patched.setenv("CUDA_LAUNCH_BLOCKING", "0")
            chosen = variants if engine == "async" else ()
            return backends.load("torch", names, "auto", engine, 1, variants=chosen), torch.cuda

    return load


@pytest.fixture
def on_gpus(engine: str) -> Callable[..., Backend]:
    """Load a framework for devices, by name or number, with variants; skip if there is no such GPU or variant."""

    def load(framework: str, devices: str | int, *variants: str) -> Backend:
        if variants and engine == "sync":
            pytest.skip("its variants are none")
        try:
            kind = "gpu" if isinstance(devices, int) else "auto"
            return backends.load(framework, devices, kind, engine, 1, variants=variants)
        except BackendError as error:
            pytest.skip(str(error))

    return load
