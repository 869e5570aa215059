"""Real traces of jobs on one GPU, in which operations are linked to the host's nested calls."""

from functools import cache
from pathlib import Path

from parallel_core.traces.case_spans import CaseSpans, cases_of
from parallel_core.traces.trace_files import read_timeline

FOLDER = Path(__file__).parent / "linked"
LINKED = (
    "event_sync",
    "stream_wait",
    "hip_training",
    "h100_bert",
    "h100_qwen",
    "two_streams",
    "ddp",
)


@cache
def case_of_trace(name: str) -> CaseSpans:
    """Read a trace as the program does."""
    (case,) = cases_of(read_timeline(FOLDER / f"{name}.json.gz"))
    return case
