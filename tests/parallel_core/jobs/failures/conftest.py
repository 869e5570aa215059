"""What tests of faults share."""

from collections.abc import Callable

import pytest

from tests.parallel_core.jobs.failures.jobs import FRAMEWORKS


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest, require: Callable[[str], None]) -> str:
    """The name of a framework that has processes; skipped if it cannot be imported."""
    require(request.param)
    return str(request.param)
