"""How a worker takes turns with others: a line on standard input gives it one, the end of the lines no more."""

import sys
from collections.abc import Iterator

__all__ = ["DONE", "turns"]

DONE = "done"
"""What a worker says when it is prepared, and after each turn."""


def turns() -> Iterator[int]:
    """Yield the number of each turn, from 1, when it comes; meanwhile the worker's work of it has to be done."""
    print(DONE, flush=True)
    for number, _ in enumerate(iter(sys.stdin.readline, ""), 1):
        yield number
        print(DONE, flush=True)
