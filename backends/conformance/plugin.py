"""A plug-in for pytest: `pytest -p backends.conformance.plugin --conformance mine` holds a
registered backend.

Each `--conformance NAME`, or `NAME:ENGINE`, adds one test to the run. Nothing is loaded unless the
plug-in is named, on the command line or as `pytest_plugins` in a `conftest.py`.
"""

from functools import partial
from typing import Any

import pytest

from backends.conformance.searching import Limits, search
from backends.registry import load


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name backends, and say which programs they run."""
    group = parser.getgroup("conformance", "backends of parallel-core")
    group.addoption(
        "--conformance",
        action="append",
        default=[],
        metavar="NAME",
        help="hold this backend: NAME:ENGINE",
    )
    group.addoption(
        "--conformance-programs", type=int, default=100, metavar="N", help="how many programs (100)"
    )
    group.addoption(
        "--conformance-seed", type=int, default=0, metavar="S", help="which programs are drawn (0)"
    )


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add a test for each backend that is named."""
    limits = Limits(
        seed=config.getoption("conformance_seed"), programs=config.getoption("conformance_programs")
    )
    items += [
        _Programs.from_parent(session, name=f"conformance[{name}]", backend=name, limits=limits)
        for name in config.getoption("conformance")
    ]


class _Programs(pytest.Item):
    """A test that runs random programs on one backend."""

    def __init__(self, *, backend: str, limits: Limits, **of_item: Any) -> None:
        super().__init__(**of_item)
        self._backend, self._limits = backend, limits

    def runtest(self) -> None:
        """Fail with the first program in which the backend does something wrong."""
        name, _, engine = self._backend.partition(":")
        arguments: dict[str, Any] = {"threads_per_device": 1}
        if engine:
            arguments["engine"] = engine
        arguments_text = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        for found in search(partial(load, name, **arguments), self._limits):
            text = found.text(f"load({name!r}, {{}}, {arguments_text})")
            # The program says more than a traceback through the suite.
            pytest.fail(
                f"{found.finding.what}, in program {found.number}, shortened:\n\n{text}",
                pytrace=False,
            )

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.name
