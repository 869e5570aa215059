"""Libraries that frameworks compute with: for which instructions they were written, how fast.

Frameworks bring copies of BLAS and oneDNN along, of different ages and makers. Which one multiplies
faster says nothing about who schedules better, so a result holds both: names for the reader, and a
rate that was measured in its process.
"""

import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from backends.host import blas_libraries, one_blas_thread, processor_flags
from backends.protocol import Array, Backend
from backends.registry import offered

CORE_TYPE = "OPENBLAS_CORETYPE"
"""The environment variable that sets OpenBLAS's core type. It is read when the library is
loaded.
"""
AVX2_CORE_TYPE = "Haswell"
CORE_TYPES_WITHOUT_AVX2 = {
    *(
        "Katmai",
        "Coppermine",
        "Northwood",
        "Prescott",
        "Banias",
        "Core2",
        "Penryn",
        "Dunnington",
        "Atom",
        "Nano",
    ),
    *(
        "Nehalem",
        "Sandybridge",
        "Athlon",
        "Opteron",
        "Opteron_SSE3",
        "Barcelona",
        "Bobcat",
        "Bulldozer",
        "Piledriver",
    ),
    *("Steamroller", "Unknown"),
}

INSTRUCTION_SETS: Sequence[tuple[str, str, set[str]]] = (
    ("AVX-512", "AVX512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ("AVX2", "AVX2", {"avx2"}),
    ("AVX", "AVX", {"avx"}),
    ("SSE4.1", "SSE41", {"sse4_1"}),
)
"""What oneDNN distinguishes, the best first: its name, how its setting begins, and the processor's
flags for it.
"""
ONEDNN_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")

SIZES = {"cpu": (256, 512, 1024), "gpu": (1024, 2048, 8192)}
"""Sides of the multiplied matrices: below the first one launching is measured too, and beyond the
last one it takes too long; the second one is for results that record no size.
"""
IN_A_ROW = {"cpu": 1, "gpu": 20}
"""Multiplications of the second size in a timing: those of a GPU are as short as a wait."""
MOST_REPETITIONS = {"cpu": 5, "gpu": 100}
"""A GPU that was idle takes tenths of a second to reach its clock rate, and the fastest counts."""
MAX_PRODUCT_SECONDS = 0.2


@dataclass(frozen=True)
class Kernels:
    """A library that computes for a framework; None for what it does not say.

    `instruction_set` is what its kernels were written for; OpenBLAS names a type of processor
    instead.
    """

    library: str
    version: str | None
    instruction_set: str | None
    threads: int


@dataclass(frozen=True)
class Product:
    """The rate of a float32 multiplication of two square matrices: on one core, or on a GPU."""

    size: int
    gflop_per_s: float


class FrameworkKernels(Protocol):
    """The functions of a framework's module about its kernels."""

    def libraries(self, threads: int) -> Sequence[Kernels]:
        """List what computes with so many threads for the framework, which is imported: what
        multiplies is first.
        """

    def one_thread(self, backend: Backend, x: Array) -> AbstractContextManager[None]:
        """Let the device of `x` compute with one thread while the context lasts.

        Nothing else may be computed then.
        """


def kernels_of(backend: Backend) -> tuple[Kernels, ...]:
    """List the libraries that compute on a backend's CPU devices, the one that multiplies matrices
    first.
    """
    if all(device.kind == "gpu" for device in backend.devices):
        return ()
    return libraries_of(backend.name, backend.threads_per_device)


def libraries_of(name: str, threads: int) -> tuple[Kernels, ...]:
    """List the libraries that compute with so many threads for a framework, which is imported."""
    framework = _framework(name)
    return tuple(framework.libraries(threads) if framework else blas(name, threads))


def product_of(backend: Backend, size: int | None = None) -> Product:
    """Measure a multiplication on one core of the first CPU device, or else on the first GPU.

    Takes up to 0.4 s. It waits for all that was launched. A size too small or too large to be
    measured is replaced by the nearest one.
    """
    device = next((one for one in backend.devices if one.kind == "cpu"), backend.devices[0])
    smallest, usual, largest = SIZES[device.kind]
    size = min(max(size or usual, smallest), largest)
    # Several small ones in a row, or waiting would be measured too.
    count = max(1, round(IN_A_ROW[device.kind] * (usual / size) ** 3))
    x = backend.asarray(
        np.random.default_rng(0).standard_normal((size, size), dtype=np.float32), device
    )

    def seconds() -> float:
        backend.waitall()
        started = time.perf_counter()
        for _ in range(count):
            backend.launch(backend.ops.matmul, x, x)
        backend.waitall()
        return (time.perf_counter() - started) / count

    on_one_core: AbstractContextManager[None] = nullcontext()
    if device.kind == "cpu" and backend.threads_per_device > 1:
        framework = _framework(backend.name)
        on_one_core = (
            framework.one_thread(backend, x) if framework else one_blas_thread(backend.name)
        )
    with on_one_core:
        # What a framework compiles before its first multiplication counts for none.
        backend.wait(backend.launch(backend.ops.matmul, x, x))
        taken = [seconds()]
        while (
            len(taken) <= MOST_REPETITIONS[device.kind]
            and count * (sum(taken) + taken[-1]) < MAX_PRODUCT_SECONDS
        ):
            taken.append(seconds())
    return Product(size, 2 * size**3 / min(taken) / 1e9)


def blas(package: str, threads: int) -> list[Kernels]:
    """List every BLAS in a framework's package."""
    names = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS"}
    return [
        Kernels(
            names.get(one.internal_api, one.internal_api),
            one.version,
            getattr(one, "architecture", None),
            threads,
        )
        for one in blas_libraries(package)
    ]


def onednn(version: str | None, threads: int) -> Kernels:
    """Describe a oneDNN: it takes the best instructions that the processor and the environment
    allow.
    """
    limit = next((os.environ[name].upper() for name in ONEDNN_LIMITS if os.environ.get(name)), "")
    return Kernels("oneDNN", version, best_instruction_set(processor_flags(), limit), threads)


def best_instruction_set(flags: frozenset[str], limit: str = "") -> str | None:
    """Return the best instructions of INSTRUCTION_SETS that flags allow, up to a limit in the words
    of oneDNN.
    """
    # Unknown limits are ignored, as oneDNN does; `AVX512_CORE` is longer than what it begins with,
    # as is `AVX2_VNNI`.
    first = next(
        (place for place, (_, begin, _) in enumerate(INSTRUCTION_SETS) if limit.startswith(begin)),
        0,
    )
    return next((name for name, _, needed in INSTRUCTION_SETS[first:] if needed <= flags), None)


def better_core_type(taken: str, flags: frozenset[str]) -> str | None:
    """Return the core type that OpenBLAS should use in place of the one it takes by itself.

    None if that is right. OpenBLAS takes its oldest kernels for a processor that it does not know,
    whatever instructions it has.
    """
    # Haswell's kernels use FMA as well. Those for AVX-512 may not be there: MXNet's library is
    # built without them, and takes Haswell's for `SkylakeX`, but Prescott's for `Cooperlake`.
    can_do_better = {"avx2", "fma"} <= flags and taken in CORE_TYPES_WITHOUT_AVX2
    return AVX2_CORE_TYPE if can_do_better else None


def _framework(name: str) -> FrameworkKernels | None:
    load = offered("kernels").get(name)
    return load() if load else None
