"""One Chromium for all tests of the report."""

from tests.parallel_core.report.chromium import browser

__all__ = ["browser"]
