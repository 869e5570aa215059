"""Limits on the figures of recordings: what holds, what is broken and why, and what stays open."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import parallel_core
from parallel_core.command_line.trace import trace as trace_command
from parallel_core.measurement.limits import parse_limit
from parallel_core.system.errors import DISTURBED, FAILED, REFUSED
from parallel_core.traces.bounds.recording import Recording
from parallel_core.traces.profile.requirements import EARLY, FIGURES, UNITS, Requirement, judge
from tests.parallel_core.traces.profile.recorded_programs import TRACES
from tests.parallel_core.traces.profile.test_answer import made
from tests.tree import ROOT

BUCKETS, ONE_BUCKET, NO_EXCHANGE = (
    TRACES / f"ddp-{name}.json.gz" for name in ("buckets", "one-bucket", "no-sync")
)
RANKS = [TRACES / f"ddp-rank{rank}.json.gz" for rank in (0, 1)]


def judged(limit: str, recording: Recording) -> Requirement:
    """Return what a recording says of a limit."""
    (requirement,) = judge([parse_limit(limit, UNITS)], recording, ())
    return requirement


def status(*arguments: str | Path) -> int:
    """Return the exit status of `parallel-core trace`."""
    result = CliRunner().invoke(trace_command, list(map(str, arguments)), standalone_mode=False)
    assert result.exception is None, result.exception
    return int(result.return_value)


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [
        ("hidden exchange >= 50 %", "holds"),
        ("hidden exchange >= 90 %", "open"),
        ("hidden exchange <= 50 %", "broken"),
        ("computing >= 80 %", "holds"),
        ("waiting >= 50 %", "broken"),
        ("step <= 30 ms", "holds"),
        ("step <= 20 ms", "open"),
        ("step <= 10 ms", "broken"),
        ("exchanges >= 20", "holds"),
        ("exchanges > 20", "broken"),
        # 15 of 20 were counted.
        (f"{EARLY} >= 75 %", "holds"),
        (f"{EARLY} >= 76 %", "broken"),
    ],
)
def test_a_limit_is_judged_by_the_interval_of_its_figure(limit: str, verdict: str) -> None:
    assert judged(limit, made()).verdict == verdict


def test_other_work_leaves_times_open_and_counts_decided() -> None:
    busy = made(taken=0.6)
    assert judged("computing >= 80 %", made()).verdict == "holds"
    assert judged("computing >= 80 %", busy).verdict == "open"
    assert judged(f"{EARLY} >= 75 %", busy).verdict == "holds"


def test_what_the_profiler_made_is_unknown_but_for_counts() -> None:
    slowed = replace(made(), slowdown=3.0)
    assert judged("computing >= 80 %", slowed).code == "slowed-down"
    assert judged(f"{EARLY} >= 75 %", slowed).verdict == "holds"


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_asked_for(name: str) -> None:
    written = {"share": "50 %", "seconds": "1 s", "ratio": "1", "count": "1"}[UNITS[name]]
    for trace in (BUCKETS, NO_EXCHANGE):
        recording = parallel_core.trace(trace).recording
        requirement = judged(f"{name} >= {written}", recording)
        assert (requirement.interval is None) == bool(requirement.code)


@pytest.mark.parametrize(
    ("trace", "limits", "expected"),
    [
        (BUCKETS, [f"{EARLY} >= 75 %"], 0),
        (BUCKETS, [f"{EARLY} >= 75 %", f"{EARLY} >= 76 %"], FAILED),
        (ONE_BUCKET, ["hidden exchange >= 50 %"], FAILED),
        (NO_EXCHANGE, ["hidden exchange >= 50 %"], DISTURBED),
        (NO_EXCHANGE, ["hidden exchange >= 50 %", "exchanges > 0"], FAILED),
    ],
)
def test_the_status_is_of_the_worst_limit(trace: Path, limits: list[str], expected: int) -> None:
    words = [word for limit in limits for word in ("--require", limit)]
    assert status(trace, *words) == expected


def test_a_broken_limit_says_the_first_reason_and_what_helps(tmp_path: Path) -> None:
    document = tmp_path / "figures.json"
    limit = f"{EARLY} >= 50 %"
    assert status(ONE_BUCKET, "--require", limit, "--json", document) == FAILED
    (requirement,) = json.loads(document.read_text())["requirements"]
    assert requirement["verdict"] == "broken"
    assert requirement["interval"] == {"estimate": 0.0, "low": 0.0, "high": 0.0}
    trace = parallel_core.trace(ONE_BUCKET)
    assert trace.unhidden[0].remedy in requirement["sentence"]


def test_what_is_no_limit_is_refused() -> None:
    result = CliRunner().invoke(trace_command, [str(BUCKETS), "--require", "hidden >= 3"])
    assert result.exit_code == REFUSED


def test_a_test_asks_for_figures_and_holds_limits() -> None:
    trace = parallel_core.trace(*RANKS)
    early = trace[EARLY]
    # Two of four exchanges are each rank's last bucket.
    assert early.interval is not None
    assert early.interval.estimate == 0.5
    trace.require(f"{EARLY} >= 50 %", "exchanges >= 4")
    with pytest.raises(AssertionError, match=f"{EARLY} >= 60 % does not hold"):
        trace.require(f"{EARLY} >= 60 %")
    with pytest.raises(parallel_core.DisturbedError):
        trace.require("hidden copies >= 1 %")


def test_the_page_s_example_is_a_test_that_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/trace-and-profile.md").read_text()
    example = re.search(
        r"```python\n(import parallel_core\nimport pytest\n.*?)```", page, re.DOTALL
    )
    assert example is not None
    for rank in RANKS:
        (tmp_path / rank.name).write_bytes(rank.read_bytes())
    namespace: dict[str, object] = {}
    code = re.sub(r'"runs/[^"]*"', repr(str(tmp_path)), example[1])
    exec(compile(code, "example", "exec"), namespace)
    (test,) = (value for name, value in namespace.items() if name.startswith("test_"))
    assert callable(test)
    test()
