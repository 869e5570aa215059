"""Which call of a verb launched an operator of MXNet's, whose profiler does not say: matched by name and order.

A device begins its operators when their inputs are there, which need not be in the order of their launch. So operators
are matched with calls of the same name only, and where there are as many of the one as of the other. Among those of one
name the first call is taken to have launched what began first; a mean wait does not depend on which did.
"""

from collections import defaultdict
from collections.abc import Sequence

from backends.profiling.marks import verb_of
from backends.profiling.timeline import Span, Window

__all__ = ["link"]

Group = tuple[str, str]
"""A device and the name of an operator."""

MADE_BY = {"copy_to": "copy", "launch to_host": "copy", "launch total": "sum"}
"""What an operator is called that a call of another name makes."""


def link(spans: Sequence[Span], host: Sequence[Span], cases: Sequence[Window]) -> tuple[list[Span], list[str]]:
    """Return the spans, with their launch where it can be told, and the devices on which that fails for some calls.

    `host` holds the calls of the verbs; what lies outside the cases stays as it is.
    """
    linked = {id(span): span for span in spans}
    unmatched = set()
    for case in cases:
        calls, work = _calls(host, case), _work(spans, case)
        for group, launches in calls.items():
            pairs = list(zip(launches, work[group], strict=False))
            if len(launches) != len(work[group]) or any(span.start < call.start for call, span in pairs):
                unmatched.add(group[0])
                continue
            for call, span in pairs:
                linked[id(span)] = span._replace(launched=call.start)
    return list(linked.values()), sorted(unmatched)


def _calls(host: Sequence[Span], case: Window) -> dict[Group, list[Span]]:
    found: dict[Group, list[Span]] = defaultdict(list)
    for call in host:
        read = verb_of(call.operator)
        if read and read.device and case.start <= call.start < case.end:
            found[read.device, MADE_BY.get(read.name, read.name.removeprefix("launch "))].append(call)
    return found


def _work(spans: Sequence[Span], case: Window) -> dict[Group, list[Span]]:
    found: dict[Group, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start):
        if case.start <= span.start < case.end:
            # To add a number is another operator than to add an array.
            found[span.device, span.name.removesuffix("_scalar")].append(span)
    return found
