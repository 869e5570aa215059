"""Frameworks that fail in a chosen way, for every test of the doctor."""

from tests.parallel_core.doctor.stub_frameworks import make_stub

__all__ = ["make_stub"]
