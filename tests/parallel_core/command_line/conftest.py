"""Fixtures that tests of commands share."""

from tests.parallel_core.doctor.stub_frameworks import make_stub

__all__ = ["make_stub"]
