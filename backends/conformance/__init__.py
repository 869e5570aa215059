"""Checks a backend against the protocol: random programs over its verbs, compared with NumPy.

A program is text, drawn together with NumPy's values of it, so that only valid programs are drawn
(`protocol.py` says what is). It runs in a separate process, because a backend may hang or crash. If
the backend gets it wrong, it is shortened and printed; whoever pastes it into a file sees the same.

From the command line, for a backend that is registered: `parallel-core conformance --backend NAME`.
With hypothesis: `st.randoms(use_true_random=False).map(draw_program)`.

What depends on the timing may need several runs to show itself. A seed and a number always give the
same program.
"""

from backends.conformance.drawing import draw_program
from backends.conformance.judging import Finding
from backends.conformance.programs import Program
from backends.conformance.searching import Found, Limits, search
from backends.conformance.serving import Loader

__all__ = [
    "Finding",
    "Found",
    "Limits",
    "Loader",
    "Program",
    "draw_program",
    "search",
]
