"""One Chromium for all tests of the report: it takes seconds to start."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.parallel_core.report.chromium import open_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="package")
def browser() -> "Iterator[Browser]":
    yield from open_browser()
