"""What tests of traces share: files of made-up events."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from backends.profiling import Trace, read_trace
from tests.backends.profiling.events import Event, Read


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a text, bytes, or a document made of events."""

    def read_that(content: str | bytes | Iterable[Event]) -> Trace:
        path = tmp_path / "trace.json"
        if not isinstance(content, str | bytes):
            content = json.dumps({"traceEvents": list(content)})
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_trace(path)

    return read_that
