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
    *("Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Core2", "Penryn", "Dunnington"),
    *("Atom", "Nano", "Nehalem", "Sandybridge", "Athlon", "Opteron", "Opteron_SSE3", "Barcelona"),
    *("Bobcat", "Bulldozer", "Piledriver", "Steamroller", "Unknown"),
}

INSTRUCTION_SETS: Sequence[tuple[str, str, set[str]]] = (
    ("AVX-512", "AVX512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ("AVX2", "AVX2", {"avx2"}),
    ("AVX", "AVX", {"avx"}),
    ("SSE4.1", "SSE41", {"sse4_1"}),
    ("SVE", "SVE", {"sve"}),
    ("Advanced SIMD", "ADVANCED_SIMD", {"asimd"}),
)
"""What oneDNN distinguishes on x86 and on ARM, the best first: its name, how its setting begins,
and the processor's flags for it.
"""
ONEDNN_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")

SIZES = {"cpu": (256, 512, 1024), "gpu": (1024, 2048, 8192)}
"""Sides of the multiplied matrices: the smallest, the usual and the largest.

A smaller one would measure launching too, and a larger one would take too long.
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
        """List the libraries that compute for the framework, with the one that multiplies first.

        The framework is imported; `threads` is the number of threads of each library.
        """

    def one_thread(self, backend: Backend, x: Array) -> AbstractContextManager[None]:
        """Let the device of `x` compute with one thread while the context lasts.

        Nothing else may be computed then.
        """


def kernels_of(backend: Backend) -> tuple[Kernels, ...]:
    """List the libraries that compute on a backend's CPU devices.

    The one that multiplies matrices is first.
    """
    if all(device.kind == "gpu" for device in backend.devices):
        return ()
    return libraries_of(backend.name, backend.threads_per_device)


def libraries_of(name: str, threads: int) -> tuple[Kernels, ...]:
    """List the libraries that compute for an imported framework, each with `threads` threads."""
    framework = _framework(name)
    if framework is None:
        return tuple(blas(name, threads))
    return tuple(framework.libraries(threads))


def product_of(backend: Backend, size: int | None = None) -> Product:
    """Measure a multiplication on one core of the first CPU device, or else on the first GPU.

    Takes up to 0.4 s, and waits for all that was launched. A size too small or too large to be
    measured is replaced by the nearest one.
    """
    cpus = [device for device in backend.devices if device.kind == "cpu"]
    device = cpus[0] if cpus else backend.devices[0]
    smallest, usual, largest = SIZES[device.kind]
    size = min(max(size or usual, smallest), largest)
    # Several small ones in a row, or waiting would be measured too.
    count = max(1, round(IN_A_ROW[device.kind] * (usual / size) ** 3))
    matrix = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    x = backend.asarray(matrix, device)

    def seconds() -> float:
        """Return the seconds that one of `count` multiplications takes."""
        backend.waitall()
        started = time.perf_counter()
        for _ in range(count):
            backend.launch(backend.ops.matmul, x, x)
        backend.waitall()
        return (time.perf_counter() - started) / count

    on_one_core: AbstractContextManager[None] = nullcontext()
    if device.kind == "cpu" and backend.threads_per_device > 1:
        framework = _framework(backend.name)
        if framework is None:
            on_one_core = one_blas_thread(backend.name)
        else:
            on_one_core = framework.one_thread(backend, x)
    with on_one_core:
        # The first multiplication is not timed, because a framework may compile before it.
        backend.wait(backend.launch(backend.ops.matmul, x, x))
        timings = [seconds()]
        while len(timings) <= MOST_REPETITIONS[device.kind]:
            # The next timing will take about as long as the last one.
            seconds_with_next = count * (sum(timings) + timings[-1])
            if seconds_with_next >= MAX_PRODUCT_SECONDS:
                break
            timings.append(seconds())
    operations = 2 * size**3
    return Product(size, operations / min(timings) / 1e9)


def blas(package: str, threads: int) -> list[Kernels]:
    """List every BLAS in a framework's package, each with `threads` threads."""
    titles = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS"}
    kernels = []
    for library in blas_libraries(package):
        title = titles.get(library.internal_api, library.internal_api)
        architecture = getattr(library, "architecture", None)
        kernels.append(Kernels(title, library.version, architecture, threads))
    return kernels


def onednn(version: str | None, threads: int) -> Kernels:
    """Return a oneDNN with the instructions that it takes.

    They are the best ones that the processor and the environment allow.
    """
    limits = [os.environ.get(name, "").upper() for name in ONEDNN_LIMITS]
    limit = next(filter(None, limits), "")
    instruction_set = best_instruction_set(processor_flags(), limit)
    return Kernels("oneDNN", version, instruction_set, threads)


def best_instruction_set(flags: frozenset[str], limit: str = "") -> str | None:
    """Return the best of INSTRUCTION_SETS for a processor with these flags; None if it has none.

    `limit` is a value of oneDNN's setting that forbids better ones.
    """
    allowed = INSTRUCTION_SETS
    for index, (_, beginning, _) in enumerate(INSTRUCTION_SETS):
        # A limit may be longer: `AVX512_CORE`, `AVX2_VNNI`. oneDNN ignores one that it does not
        # know.
        if limit.startswith(beginning):
            allowed = INSTRUCTION_SETS[index:]
            break
    for name, _, needed_flags in allowed:
        if needed_flags <= flags:
            return name
    return None


def better_core_type(taken: str, flags: frozenset[str]) -> str | None:
    """Return the core type that OpenBLAS should use in place of `taken`, which it takes by itself.

    None if `taken` is right. OpenBLAS takes its oldest kernels for a processor that it does not
    know, whatever instructions the processor has.
    """
    # Haswell's kernels use FMA as well. Those for AVX-512 may not be there: MXNet's library is
    # built without them, and takes Haswell's for `SkylakeX`, but Prescott's for `Cooperlake`.
    has_avx2 = {"avx2", "fma"} <= flags
    if has_avx2 and taken in CORE_TYPES_WITHOUT_AVX2:
        return AVX2_CORE_TYPE
    return None


def _framework(name: str) -> FrameworkKernels | None:
    """Return the module about a framework's kernels; None if its backend offers none."""
    import_module = offered("kernels").get(name)
    return None if import_module is None else import_module()
