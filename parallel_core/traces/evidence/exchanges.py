"""Which exchanges belong together: those of one kind in one process group, launched in one pass."""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from backends.profiling.collectives import Collective
from parallel_core.traces.case_spans import CaseSpans
from parallel_core.traces.evidence.passes import PHASES, Phase

CollectiveAt = Mapping[tuple[int, int], Collective]
"""What a trace says of an exchange, by its start and end from the timeline's beginning."""


class Alike(NamedTuple):
    """What exchanges have in common that belong together."""

    kind: str
    group: str
    """The process group's name and ranks, as the trace has them; empty if it does not say."""
    launched: Phase | None
    """None if no operator is known as a backward pass's."""


def alike_exchanges(
    case: CaseSpans, phases: np.ndarray | None, collective_at: CollectiveAt
) -> Mapping[Alike, list[int]]:
    """Return the places of a case's exchanges by what they have in common.

    `phases` has the place of each in PHASES.
    """
    places_of_alike: dict[Alike, list[int]] = defaultdict(list)
    places = np.flatnonzero(case.of_kind("exchange"))
    for number, span in enumerate(case.spans.select(places)):
        kind, group = span.name, ""
        collective = collective_at.get((span.start, span.end))
        if collective is not None:
            group = collective.group
            # A kernel whose name says no kind has its full name as one.
            if collective.kind != span.operator:
                kind = collective.kind
        launched = None if phases is None else PHASES[phases[number]]
        places_of_alike[Alike(kind, group, launched)].append(places[number])
    return places_of_alike
