"""What tests of faults share."""

from collections.abc import Callable

import pytest

from tests.conftest import reason_against
from tests.parallel_core.jobs.failures.jobs import FRAMEWORKS


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest, require: Callable[[str], None]) -> str:
    """The name of a framework that has processes; skipped if it cannot be imported."""
    require(request.param)
    return str(request.param)


@pytest.fixture
def frameworks() -> list[str]:
    """The names of all frameworks that have processes and can be imported, for jobs that run at the same time."""
    found = [name for name in FRAMEWORKS if not reason_against(name)]
    if not found:
        pytest.skip(f"none of {', '.join(FRAMEWORKS)} can be loaded")
    return found
