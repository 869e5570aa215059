"""Begins and ends become slices: properly nested on each row, as the format's description asks."""

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal, localcontext
from typing import Any, NamedTuple, TypeAlias, final

from backends.profiling.chrome_trace.trace_events import NO_ARGUMENTS, Arguments, Event

__all__ = ["Measured", "Pairing"]

Row: TypeAlias = tuple[Any, ...]
"""Where ends look for their begins: a process's thread, or a category and an identity."""

Measured: TypeAlias = tuple[float, float, str, str, int | str, int | str, Mapping[str, Any]]
"""Start and end in microseconds from the first event in the file, name, category, process, thread, arguments."""

Time: TypeAlias = int | Decimal | None

LONGEST = 10**18
"""Microseconds, 30 000 years: a time further from zero, or from the first one, is none."""

EXACT = Context(prec=50)


class _Begun(NamedTuple):
    """A begin without its end, and the place among the slices that is kept for it."""

    event: Event
    place: int


@final
class Pairing:
    """Take in events in the order of the file, and count what cannot be used.

    Times are subtracted as decimal numbers: microseconds since 1970 leave a float a quarter of a microsecond.
    """

    def __init__(self) -> None:
        self.processes: dict[int | str, str] = {}
        self.threads: dict[tuple[int | str, int | str], str] = {}
        self.endless: list[str] = []
        """The names of what began and never ended."""
        self.beginless: list[str] = []
        self.timeless: list[str] = []
        """The names of what has no times, or times that cannot be."""
        self._slices: list[Measured | None] = []
        self._open: dict[Row, list[_Begun]] = {}
        self._open_names: Counter[tuple[Row, str]] = Counter()
        self._first: Time = None
        # The same few names, rows and categories in a million events: each is kept once.
        self._known: dict[Any, Any] = {}

    def take(self, events: Iterable[Event]) -> None:
        """Take in some more events."""
        with localcontext(EXACT):
            for event in events:
                phase = event.ph
                if phase == "X":
                    self._slices.append(self._measured(event, event.ts, event.dur))
                elif phase == "B":
                    self._begin((event.pid, event.tid), event)
                elif phase == "E":
                    self._end((event.pid, event.tid), event)
                elif phase == "b":
                    self._begin(_identity(event), event)
                elif phase == "e":
                    self._end(_identity(event), event)
                elif phase == "M":
                    self._name(event)

    def finish(self) -> list[Measured]:
        """Return all slices in the order in which they began in the file; what is still open never ended."""
        for begun in self._open.values():
            self.endless.extend(one.event.name for one in begun)
        self._open.clear()
        return [one for one in self._slices if one is not None]

    def _measured(self, event: Event, begins: Time, lasts: Time) -> Measured | None:
        try:
            if begins is None or lasts is None:
                raise ValueError("no times")
            if self._first is None and -LONGEST < begins < LONGEST:
                self._first = begins
            start = begins - (self._first or 0)
            measured = float(start), float(start + lasts)
            if not -LONGEST < measured[0] <= measured[1] < LONGEST:
                raise ValueError("times that cannot be")
        except (ValueError, ArithmeticError):
            self.timeless.append(event.name)
            return None
        once = self._known.setdefault
        return (
            *measured,
            once(event.name, event.name),
            once(event.cat, event.cat),
            once(event.pid, event.pid),
            once(event.tid, event.tid),
            Arguments(bytes(event.args)) if event.args else NO_ARGUMENTS,
        )

    def _begin(self, row: Row, event: Event) -> None:
        # A raw value keeps all the text alive that it was read from.
        event.args = event.args.copy()
        self._open.setdefault(row, []).append(_Begun(event, len(self._slices)))
        self._open_names[row, event.name] += 1
        self._slices.append(None)

    def _end(self, row: Row, event: Event) -> None:
        begun = self._open.get(row)
        anonymous = begun and not (event.name and begun[-1].event.name)
        if not begun or not (anonymous or self._open_names[row, event.name]):
            self.beginless.append(event.name)
            return
        while True:
            begin, place = begun.pop()
            self._open_names[row, begin.name] -= 1
            if anonymous or begin.name == event.name:
                break
            self.endless.append(begin.name)
        lasts = None if event.ts is None or begin.ts is None else event.ts - begin.ts
        self._slices[place] = self._measured(begin, begin.ts, lasts)

    def _name(self, event: Event) -> None:
        name = Arguments(bytes(event.args)).get("name")
        if not isinstance(name, str):
            return
        if event.name == "process_name":
            self.processes[event.pid] = name
        elif event.name == "thread_name":
            self.threads[event.pid, event.tid] = name


def _identity(event: Event) -> Row:
    identity = event.id if event.id2 is None else tuple(sorted(event.id2.items()))
    return event.cat, identity, event.name
