"""Progress of a measurement: reported between timings, to whoever listens."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

Listener = Callable[[str, float], object]
"""A function of what is done next, and of the share of its part of the measurement that is behind
it.
"""

_listener: ContextVar[Listener] = ContextVar("listener", default=lambda *_: None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call the listener at every `tell` within a `with` block.

    It takes time from what is timed if it lingers.
    """
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def part(begin: float, end: float) -> AbstractContextManager[None]:
    """Report shares as those of a part within a `with` block.

    From 0 to 1 they lead from `begin` to `end`.
    """
    listener = _listener.get()
    return listening(lambda what, share: listener(what, begin + share * (end - begin)))


def tell(what: str, share: float) -> None:
    """Say what is done next and what fraction, from 0 to 1, of its part of the measurement is
    behind it.
    """
    _listener.get()(what, share)
