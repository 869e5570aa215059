"""Link MXNet's operators with the calls of verbs that launched them, by name and order: its profiler does not.

A device begins its operators when their inputs are there, which need not be in the order of their launch. So operators
are matched with calls of the same name only, and only if there are as many of the one as of the other. Among those of
one name the first call is taken to have launched what began first; a mean wait does not depend on which did.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from backends.profiling.marks import parse_verb
from backends.profiling.timeline import Span, Window

LinkKey: TypeAlias = tuple[str, str]
"""A device and the name of an operator."""

OPERATOR_OF_CALL = {"copy_to": "copy", "launch to_host": "copy", "launch total": "sum"}
"""The operator that a call of another name launches."""


def link_launches(spans: Sequence[Span], host: Sequence[Span], cases: Sequence[Window]) -> tuple[list[Span], list[str]]:
    """Return the spans, with their launch if it is known, and the devices on which some calls have no match.

    `host` holds the calls of the verbs; spans outside of the cases stay as they are.
    """
    linked = {id(span): span for span in spans}
    unmatched = set()
    for case in cases:
        calls, operators = _calls(host, case), _operators(spans, case)
        for key, launches in calls.items():
            pairs = list(zip(launches, operators[key], strict=False))
            if len(launches) != len(operators[key]) or any(span.start < call.start for call, span in pairs):
                unmatched.add(key[0])
                continue
            for call, span in pairs:
                linked[id(span)] = span._replace(launched=call.start)
    return list(linked.values()), sorted(unmatched)


def _calls(host: Sequence[Span], case: Window) -> dict[LinkKey, list[Span]]:
    calls: dict[LinkKey, list[Span]] = defaultdict(list)
    for call in host:
        parsed = parse_verb(call.operator)
        if parsed and parsed.device and case.start <= call.start < case.end:
            operator = OPERATOR_OF_CALL.get(parsed.name, parsed.name.removeprefix("launch "))
            calls[parsed.device, operator].append(call)
    return calls


def _operators(spans: Sequence[Span], case: Window) -> dict[LinkKey, list[Span]]:
    operators: dict[LinkKey, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start):
        if case.start <= span.start < case.end:
            # Adding a number is another operator than adding an array.
            operators[span.device, span.name.removesuffix("_scalar")].append(span)
    return operators
