"""A case's exchanges, device by device, and its copies, and when nothing hid them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from parallel_core.traces.account import exchanges_by_device, masks_of
from parallel_core.traces.case_spans import CaseSpans, gaps, lengths_within


class Communication(NamedTuple):
    """Exchanges of one device, or all copies, and what may hide them."""

    places: np.ndarray
    """In the case's spans."""
    free: np.ndarray
    """When nothing was computed that hides them, as an interval set."""


class Stretches(NamedTuple):
    """When operations ran beside no computation; an entry for each operation in all arrays."""

    places: np.ndarray
    exposed: np.ndarray
    """How long each ran beside no computation; 0 for one that is hidden."""
    alone_from: np.ndarray
    """When its longest stretch beside no computation begins."""
    alone_until: np.ndarray

    def select(self, where: np.ndarray) -> "Stretches":
        """Return those of the operations that a mask selects, or at some places."""
        return Stretches(*(column[where] for column in self))


def communication(case: CaseSpans) -> list[Communication]:
    """Return a case's exchanges, device by device, and its copies."""
    groups = []
    for device in exchanges_by_device(case):
        free = gaps(device.computing, case.start, case.end)
        groups.append(Communication(device.places, free))
    masks = masks_of(case)
    if masks.copying.any():
        computing = case.covered(masks.computing)
        copies = np.flatnonzero(masks.copying)
        groups.append(Communication(copies, gaps(computing, case.start, case.end)))
    return groups


def stretches_of(case: CaseSpans, groups: Sequence[Communication]) -> Stretches:
    """Return how long each operation was not hidden, and its longest stretch of that, by places.

    Operations that took no time are left out. A hidden one has an empty stretch.
    """
    by_group = [_stretches_of_group(case, group) for group in groups]
    if not by_group:
        return Stretches(*np.zeros((4, 0), np.int64))
    joined = Stretches(*map(np.concatenate, zip(*by_group, strict=True)))
    by_place = np.argsort(joined.places, kind="stable")
    return joined.select(by_place)


def _stretches_of_group(case: CaseSpans, group: Communication) -> Stretches:
    """Return the stretches of one group's operations, in the order of the group."""
    takes_time = case.spans.ends[group.places] > case.spans.starts[group.places]
    places = group.places[takes_time]
    starts, ends = case.spans.starts[places], case.spans.ends[places]
    exposed = lengths_within(group.free, case.intervals(places))
    alone_from, alone_until = starts.copy(), starts.copy()
    is_exposed = exposed > 0
    longest = _longest_within(group.free, starts[is_exposed], ends[is_exposed])
    alone_from[is_exposed], alone_until[is_exposed] = longest
    return Stretches(places, exposed, alone_from, alone_until)


def _longest_within(
    free: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and end of the longest part of an interval set within each operation.

    `starts` and `ends` are those of the operations. Every operation has such a part.
    """
    # The intervals that reach into each operation: a row for each pair of the two.
    first_interval = np.searchsorted(free[:, 1], starts, side="right")
    counts = np.searchsorted(free[:, 0], ends) - first_interval
    first_row = np.cumsum(counts) - counts
    operation = np.repeat(np.arange(len(starts)), counts)
    number_within = np.arange(len(operation)) - first_row[operation]
    interval = free[first_interval[operation] + number_within]

    begins = np.maximum(interval[:, 0], starts[operation])
    stops = np.minimum(interval[:, 1], ends[operation])
    # The longest part of each operation stands in its first row.
    order = np.lexsort((begins - stops, operation))
    longest = order[first_row]
    return begins[longest], stops[longest]


def exposed_within(
    case: CaseSpans, groups: Sequence[Communication], places: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Return how much of each operation's first nanoseconds lay beside no computation.

    `places` are operations of the groups, in ascending order, and `times` the number of nanoseconds
    for each.
    """
    exposed = np.zeros(len(places), np.int64)
    for group in groups:
        # Looked up from the group: its operations are few where there are many groups.
        nearest = np.searchsorted(places, group.places).clip(max=len(places) - 1)
        of_group = nearest[places[nearest] == group.places]
        starts = case.spans.starts[places[of_group]]
        windows = np.stack((starts, starts + times[of_group]), axis=1)
        exposed[of_group] = lengths_within(group.free, windows)
    return exposed
