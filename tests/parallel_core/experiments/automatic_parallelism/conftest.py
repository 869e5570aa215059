"""Other processes, pretended."""

from collections.abc import Mapping
from typing import Any

import pytest

from backends import Backend
from parallel_core import Result
from parallel_core.experiments.runner import trial as trials
from parallel_core.measurement.result import describe_backend
from tests.parallel_core.experiments.runner.pretended import case


@pytest.fixture
def elsewhere(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Pretend the other processes, and keep the options that they were asked to take."""
    asked: list[dict[str, Any]] = []

    def pretended(experiment: str, options: Mapping[str, Any]) -> Result:
        asked.append(dict(options))
        if experiment == "small-ops":
            names = [f"one device, size {size}" for size in options["sizes"].split(",")]
        else:
            workers = f"{options['workers']} {'worker' if options['workers'] == 1 else 'workers'}"
            names = [f"independent, {workers}", f"chain, {workers}"]
        cases = tuple(case(name, 2.0, 2.0) for name in names)
        return Result(
            experiment, describe_backend(backend), {}, cases, {}, {"max_relative_error": 0.5e-5}, "Pretended."
        )

    monkeypatch.setattr(trials, "measure_elsewhere", pretended)
    return asked
