"""The traces of several processes become one answer and one timeline."""

from pathlib import Path

import pytest

from parallel_core.own_program.answer import analyse
from parallel_core.own_program.running import Recorded
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.case_spans import cases_of
from parallel_core.trace_analysis.figures import figures_of
from parallel_core.trace_analysis.lanes import overlap_phrases

TWO_PROCESSES = Path(__file__).parents[1] / "trace_analysis" / "traces" / "two_processes"


def recorded(rank: int | None, steps: int) -> Recorded:
    return Recorded(1, "torch", rank, "optimizer", 9, steps, Path("trace"), "")


def test_two_processes_are_one_program() -> None:
    paths = [TWO_PROCESSES / f"rank-{rank}.json.gz" for rank in (0, 1)]
    found = analyse({path: recorded(rank, 1) for rank, path in enumerate(paths)})
    assert list(found.figures) == paths
    assert "1 recorded on each of 2 processes" in found.answer.sentences[0]
    assert {span.device for span in found.timeline.spans} >= {"rank 0 cpu", "rank 1 cpu"}
    (case,) = cases_of(found.timeline)
    (phrase,) = overlap_phrases(figures_of(case))
    assert phrase.endswith("queues at once"), "no rank's exchange hides under another's computation"


def test_a_damaged_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"no trace")
    with pytest.raises(RequestError, match=r"trace\.json\.gz"):
        analyse({path: recorded(None, 1)})
