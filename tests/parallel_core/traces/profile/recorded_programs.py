"""The example programs, and the traces that some of them left."""

from pathlib import Path

from backends.profiling import Timeline
from parallel_core.traces.trace_files import read_timeline

__all__ = ["EXAMPLES", "RECORDED_STEPS", "TRACES", "recorded"]

EXAMPLES = Path(__file__).parent / "examples"
TRACES = Path(__file__).parent / "stored"
RECORDED_STEPS = 2


def recorded(name: str) -> Timeline:
    """Read one of the traces."""
    return read_timeline(TRACES / f"{name}.json.gz")
