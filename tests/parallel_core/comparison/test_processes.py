"""Processes that run several cells: what each gave is kept, whatever becomes of the others."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parallel_core.comparison.cells import OWN_ENGINE, CellResults, FailedRun, with_engines_that_ran
from parallel_core.comparison.plan import Plan
from parallel_core.comparison.processes import Ran, run_cells
from parallel_core.experiments import EXPERIMENTS
from parallel_core.measurement.result import Result
from tests.parallel_core.comparison.made_up import comparison

PLAN = Plan(
    experiments=(EXPERIMENTS["building-blocks"], EXPERIMENTS["parallel"]),
    backends=("numpy",),
    engines=("sync",),
    interpreters={"numpy": sys.executable},
    mode="quick",
    shared=True,
    seconds=60.0,
    deadline=100.0,
)
FIRST, SECOND = PLAN.cells
SMALL: Mapping[str, Mapping[str, Any]] = {"building-blocks": {"rounds": 1}, "parallel": {"rounds": 1, "size": 16}}


def ran(plan: Plan = PLAN, deadline: float = 60.0) -> Ran:
    return asyncio.run(run_cells(plan, PLAN.cells, SMALL, 1, deadline))


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """Return the path of a program that stands in for a Python."""
    return tmp_path / "python"


def with_interpreter(path: Path, script: str) -> Plan:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return replace(PLAN, interpreters={"numpy": str(path)})


def test_cells_of_a_backend_and_engine_share_a_process() -> None:
    both = ran()
    for cell, size in ((FIRST, None), (SECOND, 16)):
        result = both.outcomes[cell]
        assert isinstance(result, Result)
        assert result.parameters.get("size") == size
        assert both.seconds[cell] > 0
    assert both.start > 0


def test_a_backend_that_takes_its_own_engine_is_named_by_what_it_ran_on() -> None:
    plan = replace(PLAN, engines=(OWN_ENGINE,), experiments=PLAN.experiments[1:])
    (cell,) = plan.cells
    assert str(cell) == "parallel on numpy"
    result = asyncio.run(run_cells(plan, plan.cells, SMALL, 1, 60.0)).outcomes[cell]
    assert isinstance(result, Result)
    measured, failed = CellResults(cell, (result,)), CellResults(replace(cell, backend="torch"))
    named = with_engines_that_ran(comparison(measured, failed))
    assert [str(one.cell) for one in named.cells] == ["parallel on numpy sync", "parallel on torch"]
    assert with_engines_that_ran(named) == named


def test_what_was_measured_before_a_crash_is_kept(interpreter: Path) -> None:
    # $4 is `several`, and $5 the first run.
    crashing = with_interpreter(interpreter, f'{sys.executable} -P -m parallel_core several "$5"; kill -SEGV $$')
    after_crash = ran(crashing)
    assert isinstance(after_crash.outcomes[FIRST], Result)
    assert after_crash.outcomes[SECOND] == FailedRun(1, "was killed by SIGSEGV", refused=False)


def test_the_result_of_a_disturbed_machine_is_read(interpreter: Path) -> None:
    disturbed = with_interpreter(interpreter, f'{sys.executable} "$@"; exit 3')
    outcomes = asyncio.run(run_cells(replace(disturbed, shared=False, seconds=None), [SECOND], SMALL, 1, 60.0)).outcomes
    assert isinstance(outcomes[SECOND], Result)


@pytest.mark.parametrize(
    ("script", "reason", "refused"),
    [
        ("sleep 1000 & sleep 1000", "gave no result within 0.5 s and was killed", False),
        ("echo 'parallel-core: numpy is not installed' >&2; exit 2", "numpy is not installed", True),
        ("echo '{'", "gave something else than the result that was asked for", False),
        ("kill -SEGV $$", "was killed by SIGSEGV", False),
    ],
)
def test_the_first_cell_bears_what_befell_the_process(
    interpreter: Path, script: str, reason: str, refused: bool
) -> None:
    failed = ran(with_interpreter(interpreter, script), deadline=0.5)
    # The second one was not reached: it is run in another process.
    assert failed.outcomes == {FIRST: FailedRun(1, reason, refused)}


def test_an_interpreter_that_is_gone_is_a_refusal(tmp_path: Path) -> None:
    gone = ran(replace(PLAN, interpreters={"numpy": str(tmp_path / "python")}))
    (failure,) = gone.outcomes.values()
    assert isinstance(failure, FailedRun)
    assert failure.refused
    assert failure.reason.endswith("cannot be started: No such file or directory")
