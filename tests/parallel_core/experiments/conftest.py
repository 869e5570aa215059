"""What experiments say must not depend on what else the machine does while the tests run."""

from pathlib import Path

import pytest

from parallel_core.system import machine_watch


@pytest.fixture(autouse=True)
def _unwatched_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be known of other work, as on a system that does not count it."""
    monkeypatch.setattr(machine_watch, "STATISTICS", Path("/nowhere"))
