"""Which kernels PyTorch computes with: its library holds MKL, which multiplies matrices, and
oneDNN.

A PyTorch built without MKL has a separate BLAS beside it.
"""

import ctypes
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from backends.installation.kernels import Kernels, blas, onednn
from backends.protocol import Array, Backend

MEETING_SECONDS = 10.0
"""How long a worker waits for the other workers of its queue."""


class _Version(ctypes.Structure):
    """MKL's `MKLVersion`."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("major", "minor", "update")),
        *((name, ctypes.c_char_p) for name in ("status", "build", "processor", "platform")),
    )


def libraries(threads: int) -> Sequence[Kernels]:
    """List MKL, or what replaces it, and oneDNN."""
    import torch

    build: str = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version (\S+?)-", build)
    if mkl is None:
        kernels = blas("torch", threads)
    else:
        kernels = [Kernels("MKL", mkl[1], _instructions_of_mkl(torch), threads)]
    dnn = re.search(r"MKL-DNN v(\S+)", build)
    if dnn is not None:
        kernels.append(onednn(dnn[1], threads))
    return kernels


def _instructions_of_mkl(torch: Any) -> str | None:
    """Return the instruction set of MKL's kernels.

    None if MKL names none, as on processors of other makers.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
    get_version = getattr(library, "mkl_serv_get_version", None)
    if get_version is None:
        return None
    version = _Version()
    get_version(ctypes.byref(version))
    # "Intel(R) Advanced Vector Extensions 512 (Intel(R) AVX-512) enabled processors"
    processor = (version.processor or b"").replace(b"(R)", b"")
    instructions = re.search(rb"AVX-512|AVX2|AVX|SSE[\d.]+", processor)
    return instructions[0].decode() if instructions else None


@contextmanager
def one_thread(backend: Backend, x: Array) -> Iterator[None]:
    """Limit each worker of the device of `x` to one thread within a `with` block.

    PyTorch and MKL have a number of threads for each thread of Python.
    """
    _set_threads(backend, x, 1)
    try:
        yield
    finally:
        _set_threads(backend, x, backend.threads_per_device)


def _set_threads(backend: Backend, x: Array, threads: int) -> None:
    """Set the number of threads in each worker of the device of `x`."""
    import torch

    meeting = threading.Barrier(backend.workers_per_device)

    def limit(x: Array) -> Array:
        """Set it in this worker, and wait for the other workers."""
        torch.set_num_threads(threads)
        # So no worker takes two of these calls: each is held until all workers have taken one.
        with suppress(threading.BrokenBarrierError):
            meeting.wait(MEETING_SECONDS)
        return x

    for _ in range(backend.workers_per_device):
        backend.launch(limit, x)
    backend.waitall()
