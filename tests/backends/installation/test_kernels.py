"""What computes for a framework is named, with what it was written for, and measured on one
core.
"""

import math
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Array, Backend
from backends.installation.kernels import (
    CORE_TYPES_WITHOUT_AVX2,
    better_core_type,
    kernels_of,
    onednn,
    product_of,
)

MODERN = frozenset({"sse4_1", "avx", "avx2", "fma"})
AVX512 = MODERN | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
NEOVERSE_V1 = frozenset({"fp", "asimd", "sve"})
FLAGS = st.frozensets(st.sampled_from(sorted(AVX512)))


@given(
    FLAGS,
    st.sampled_from(sorted(CORE_TYPES_WITHOUT_AVX2)),
    st.sampled_from(["Haswell", "Zen", "SkylakeX", "neoversen1"]),
)
def test_openblas_is_told_what_a_processor_can_do_that_it_does_not_know(
    flags: frozenset[str], without_avx2: str, other: str
) -> None:
    has_avx2 = flags >= {"avx2", "fma"}
    assert better_core_type(without_avx2, flags) == ("Haswell" if has_avx2 else None)
    assert better_core_type(other, flags) is None


@pytest.mark.parametrize(
    ("flags", "limit", "expected"),
    [
        (AVX512, None, "AVX-512"),
        (MODERN, None, "AVX2"),
        (MODERN, "AVX512_CORE_AMX", "AVX2"),
        (AVX512, "avx2_vnni", "AVX2"),
        (AVX512, "AVX", "AVX"),
        (AVX512, "SSE41", "SSE4.1"),
        (AVX512, "DEFAULT", "AVX-512"),
        (NEOVERSE_V1, None, "SVE"),
        (NEOVERSE_V1, "advanced_simd", "Advanced SIMD"),
        (NEOVERSE_V1 - {"sve"}, None, "Advanced SIMD"),
        (frozenset(), None, None),
    ],
)
def test_onednn_takes_the_best_that_processor_and_environment_allow(
    monkeypatch: pytest.MonkeyPatch, flags: frozenset[str], limit: str | None, expected: str | None
) -> None:
    monkeypatch.setattr("backends.installation.kernels.processor_flags", lambda: flags)
    monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert onednn("3.0", 1).instruction_set == expected


EXPECTED = {
    "jax": ["YNNPACK", "XLA", "Eigen"],
    "mxnet": ["OpenBLAS", "oneDNN"],
    "torch": ["MKL", "oneDNN"],
    "numpy": ["OpenBLAS"],
}
WITHOUT_VERSION = ("YNNPACK", "Eigen")


def test_a_framework_s_own_libraries_are_listed_with_what_multiplies_first(
    backend: Backend, backend_name: str
) -> None:
    assert backend.name == backend_name
    assert backend.version == sys.modules[backend_name].__version__
    all_kernels = kernels_of(backend)
    assert [kernels.library for kernels in all_kernels] == EXPECTED[backend.name]
    for kernels in all_kernels:
        assert kernels.threads == 1
        if kernels.library not in WITHOUT_VERSION:
            assert kernels.version
            assert kernels.version[0].isdigit()
        if kernels.library == "OpenBLAS":
            assert kernels.instruction_set
    assert 0 < product_of(backend, 300).gflop_per_s < math.inf


@pytest.mark.parametrize(
    ("size_asked_for", "size"), [(8, 256), (None, 512), (300, 300), (5000, 1024)]
)
def test_a_product_is_measured_at_a_size_that_can_be(size_asked_for: int | None, size: int) -> None:
    measured = product_of(backends.load("numpy", 1), size_asked_for)
    assert measured.size == size


def test_what_the_first_product_alone_takes_is_no_part_of_the_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = backends.load("numpy", 1)
    events: list[str] = []
    wait, clock = backend.wait, time.perf_counter

    def note_wait(x: Array) -> Array:
        events.append("computed")
        return wait(x)

    def note_clock() -> float:
        events.append("clock")
        return clock()

    monkeypatch.setattr(backend, "wait", note_wait)
    monkeypatch.setattr(time, "perf_counter", note_clock)
    product_of(backend, 300)
    # A framework may compile a function when it is first launched.
    assert events[:2] == ["computed", "clock"]


@pytest.mark.parametrize("workers", [1, 2])
def test_measuring_on_one_core_leaves_every_worker_its_threads(
    require: Callable[[str], None], engine: str, workers: int
) -> None:
    require("torch")
    import torch

    if engine == "sync" and workers > 1:
        pytest.skip("no queue for two workers")
    backend = backends.load(
        "torch", 1, "cpu", engine, threads_per_device=3, workers_per_device=workers
    )
    matmul = backend.ops.matmul
    threads_of_products: list[int] = []

    def note_threads(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        threads_of_products.append(torch.get_num_threads())
        return matmul(a, b)

    backend.ops = SimpleNamespace(matmul=note_threads)
    product_of(backend, 256)
    assert set(threads_of_products) == {1}

    threads_of_products.clear()
    x = backend.asarray(torch.ones(2, 2).numpy(), backend.devices[0])
    for _ in range(20):
        backend.launch(note_threads, x, x)
    backend.waitall()
    assert set(threads_of_products) == {3}
