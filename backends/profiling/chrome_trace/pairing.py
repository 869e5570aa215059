"""Pair begins with ends into slices: properly nested in each row, as the format's description asks."""

from collections import Counter
from collections.abc import Iterable
from decimal import Context, Decimal, localcontext
from typing import Any, NamedTuple, TypeAlias, final

from backends.profiling.chrome_trace.trace_events import Event, decoded_args

__all__ = ["Pairing", "Slice"]

PairingKey: TypeAlias = tuple[Any, ...]
"""What an end shares with its begin: a process and thread, or a category, an identity and a name."""

EventTime: TypeAlias = int | Decimal | None

MAX_MICROSECONDS = 10**18
"""30 000 years: a time further from zero is impossible."""
MAX_NANOSECONDS = 2**62
"""146 years: so is one that is further from the first one; differences fit in 64 bits."""

EXACT = Context(prec=50)

ENDLESS, BEGINLESS = "began and never ended", "ended without a beginning"
TIMELESS = "without times or with impossible times"


class Slice(NamedTuple):
    """One complete event: `X`, or a begin and its end. Times are in nanoseconds from the trace's earliest event."""

    name: str
    category: str
    process: int | str
    thread: int | str
    start: int
    end: int
    raw_args: bytes = b""

    @property
    def args(self) -> dict[str, Any]:
        """The arguments; each access decodes them, because most are never asked for."""
        return decoded_args(self.raw_args)


@final
class Pairing:
    """Take in events in the order of the file, and record what cannot be used.

    Times are added as decimal numbers, because microseconds since 1970 leave a float a quarter of a microsecond; each
    begin and each end is then rounded to nanoseconds once, so that what touches still does.
    """

    def __init__(self) -> None:
        self.processes: dict[int | str, str] = {}
        self.threads: dict[tuple[int | str, int | str], str] = {}
        self.named_twice: set[int | str] = set()
        """Processes that have two names, or the same one twice."""
        self.dropped: dict[str, list[str]] = {ENDLESS: [], BEGINLESS: [], TIMELESS: []}
        """By reason, the names of the events that were dropped."""
        self._slices: list[Slice | None] = []
        self._open: dict[PairingKey, list[tuple[Event, int]]] = {}
        """Begins without their ends, and the places among the slices that are kept for them."""
        self._open_names: Counter[tuple[PairingKey, str]] = Counter()
        self._first: int | None = None
        # The same few names, rows and categories in a million events: each is kept once.
        self._known: dict[Any, Any] = {}

    @property
    def first(self) -> int:
        """When the file's first event started, in nanoseconds by its own clock."""
        return self._first or 0

    def take(self, events: Iterable[Event]) -> None:
        """Take in some more events."""
        with localcontext(EXACT):
            for event in events:
                phase = event.ph
                if phase == "X":
                    self._slices.append(self._slice(event, event.ts, event.dur))
                elif phase in ("B", "b"):
                    self._begin(_key(event), event)
                elif phase in ("E", "e"):
                    self._end(_key(event), event)
                elif phase == "M":
                    self._name(event)

    def finish(self) -> list[Slice]:
        """Return all slices, in nanoseconds from the file's first event, in the order of their begins in the file."""
        self.dropped[ENDLESS] += (event.name for begins in self._open.values() for event, _ in begins)
        return [one for one in self._slices if one is not None]

    def _slice(self, event: Event, begins: EventTime, lasts: EventTime) -> Slice | None:
        try:
            if begins is None or lasts is None:
                raise ValueError("no times")
            if not -MAX_MICROSECONDS < begins <= begins + lasts < MAX_MICROSECONDS:
                raise ValueError("impossible times")
            start, end = round(begins * 1000), round((begins + lasts) * 1000)
            if self._first is None:
                self._first = start
            start, end = start - self._first, end - self._first
            if not -MAX_NANOSECONDS < start <= end < MAX_NANOSECONDS:
                raise ValueError("impossible times")
        except (ValueError, ArithmeticError):
            self.dropped[TIMELESS].append(event.name)
            return None
        once = self._known.setdefault
        name, category = once(event.name, event.name), once(event.cat, event.cat)
        return Slice(
            name, category, once(event.pid, event.pid), once(event.tid, event.tid), start, end, bytes(event.args)
        )

    def _begin(self, key: PairingKey, event: Event) -> None:
        # A raw value keeps all the text alive that it was read from.
        event.args = event.args.copy()
        self._open.setdefault(key, []).append((event, len(self._slices)))
        self._open_names[key, event.name] += 1
        self._slices.append(None)

    def _end(self, key: PairingKey, event: Event) -> None:
        begins = self._open.get(key)
        anonymous = begins and not (event.name and begins[-1][0].name)
        if not begins or not (anonymous or self._open_names[key, event.name]):
            self.dropped[BEGINLESS].append(event.name)
            return
        while True:
            begin, place = begins.pop()
            self._open_names[key, begin.name] -= 1
            if anonymous or begin.name == event.name:
                break
            self.dropped[ENDLESS].append(begin.name)
        lasts = None if event.ts is None or begin.ts is None else event.ts - begin.ts
        self._slices[place] = self._slice(begin, begin.ts, lasts)

    def _name(self, event: Event) -> None:
        name = decoded_args(bytes(event.args)).get("name")
        if not isinstance(name, str):
            return
        if event.name == "process_name":
            if event.pid in self.processes:
                self.named_twice.add(event.pid)
            self.processes[event.pid] = name
        elif event.name == "thread_name":
            self.threads[event.pid, event.tid] = name


def _key(event: Event) -> PairingKey:
    if event.ph in "BE":
        return event.pid, event.tid
    identity = event.id if event.id2 is None else tuple(sorted(event.id2.items()))
    return event.cat, identity, event.name
