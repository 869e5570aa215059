"""What tests of scheduling share."""

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Hold work back until it is set; a test that would wait for ever finds it set after a while, and fails."""
    event = threading.Event()
    timer = threading.Timer(20, event.set)
    timer.start()
    yield event
    timer.cancel()
    event.set()
