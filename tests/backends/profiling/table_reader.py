"""A reader of someone else's, for traces that are tables: tests install it in a folder of its own.

a table of operations
matmul,npu:0,core,0,400
"""

from backends.profiling import Span, Timeline, TraceFile

FIRST_LINE = "a table of operations"


def recognises(file: TraceFile) -> bool:
    with file.path.open(errors="replace") as lines:
        return lines.readline().strip() == FIRST_LINE


def timeline_of(file: TraceFile) -> Timeline:
    _, *rows = file.path.read_text().splitlines()
    spans = []
    for row in rows:
        name, device, queue, start, end = row.split(",")
        spans.append(Span(name, "compute", device, queue, int(start), int(end)))
    return Timeline("table", spans)
