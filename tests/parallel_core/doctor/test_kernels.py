"""The doctor names what each framework computes with, and says what to do where one is far slower than another."""

import pytest

from backends.installation.kernels import Kernels, Product
from backends.installation.probe import Probe
from parallel_core.doctor.frameworks import Attempt
from parallel_core.doctor.kernels import examine_kernels
from tests.parallel_core.doctor.findings import MXNET, command, named, states

MODERN = {"avx2", "fma"}


def attempt(name: str, rate: float, *libraries: Kernels) -> Attempt:
    return Attempt(name, (), (Probe(name, "sync", "1.0", kernels=libraries, product=Product(512, rate)),))


def openblas(core_type: str) -> Kernels:
    return Kernels("OpenBLAS", "0.3.13", core_type, 1)


MKL = attempt("torch", 100.0, Kernels("MKL", "2024.2", None, 1), Kernels("oneDNN", None, "AVX-512", 1))


def test_libraries_are_named_with_their_rate() -> None:
    section = examine_kernels([MKL, attempt("own", 60.0)], {}, MODERN)
    assert states(section) == {"torch": "fine", "own": "fine"}
    assert named(section, "torch").text == "MKL 2024.2; oneDNN, AVX-512 kernels: products at 100 GFLOP/s on one core"
    assert named(section, "own").text == "products at 60 GFLOP/s on one core"
    assert named(section, "torch").figures["gflop_per_s"] == 100


@pytest.mark.parametrize(
    ("core_type", "environment", "processor", "expected"),
    [
        ("Prescott", {}, MODERN, "export OPENBLAS_CORETYPE=Haswell"),
        ("Prescott", {"OPENBLAS_CORETYPE": "Prescott"}, MODERN, "unset OPENBLAS_CORETYPE"),
        ("Prescott", {}, set(), "parallel-core compare parallel --quick"),
        ("Haswell", {}, MODERN, "parallel-core compare parallel --quick"),
    ],
)
def test_less_than_half_of_another_s_rate_is_doubtful(
    core_type: str, environment: dict[str, str], processor: set[str], expected: str
) -> None:
    section = examine_kernels([MKL, attempt("mxnet", 14.5, openblas(core_type))], environment, processor)
    assert states(section) == {"torch": "fine", "mxnet": "doubtful"}
    finding = named(section, "mxnet")
    assert command(finding) == expected
    assert finding.diagnosis is not None
    assert finding.diagnosis.cause.startswith("torch multiplies matrices 6.9 × as fast (100 GFLOP/s on one core)")


def test_what_was_not_measured_is_left_out() -> None:
    assert states(examine_kernels([MXNET, Attempt("torch", (), ())], {}, MODERN)) == {}
