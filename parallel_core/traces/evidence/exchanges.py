"""Which exchanges belong together: those of one kind in one process group, launched in one pass."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from backends.profiling.collectives import Collective
from parallel_core.traces.case_spans import CaseSpans
from parallel_core.traces.evidence.passes import PHASES, Phase

CollectiveAt: TypeAlias = Mapping[tuple[int, int], Collective]
"""What a trace says of an exchange, by its start and end from the timeline's beginning."""


class Alike(NamedTuple):
    """Exchanges that belong together."""

    kind: str
    group: str
    """What the trace calls the process group, with its ranks; empty if it does not say."""
    launched: Phase | None
    """None if no operator is known as a backward pass's."""
    places: np.ndarray
    """In the case's spans."""
    collectives: tuple[Collective, ...]


def alike_exchanges(
    case: CaseSpans, phases: np.ndarray | None, collective_at: CollectiveAt
) -> Iterator[Alike]:
    """Yield the exchanges of a case that belong together; `phases` has the place of each in
    PHASES.
    """
    numbers_of_alike: dict[tuple[str, str, Phase | None], list[int]] = defaultdict(list)
    places = np.flatnonzero(case.of_kind("exchange"))
    exchanges = list(case.spans.select(places))
    for number, span in enumerate(exchanges):
        collective = collective_at.get((span.start, span.end))
        kind, group = span.name, ""
        if collective is not None:
            group = collective.group
            # A kernel whose name says no kind has its full name as one.
            kind = span.name if collective.kind == span.operator else collective.kind
        launched = None if phases is None else PHASES[phases[number]]
        numbers_of_alike[kind, group, launched].append(number)
    for (kind, group, launched), numbers in numbers_of_alike.items():
        times = [(exchanges[number].start, exchanges[number].end) for number in numbers]
        collectives = tuple(collective_at[time] for time in times if time in collective_at)
        yield Alike(kind, group, launched, places[numbers], collectives)
