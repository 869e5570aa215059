"""The operations that take the most time: against adding them up on real traces."""

import pytest

from parallel_core.trace_analysis.device_figures.devices import operations_by_name
from tests.parallel_core.trace_analysis.synthetic import made_case, queue_of
from tests.parallel_core.trace_analysis.traces import counting as traces
from tests.parallel_core.trace_analysis.traces.counting import case_of_trace


@pytest.mark.parametrize("name", traces.LINKED)
def test_operations_are_added_up_by_name(name: str) -> None:
    lengths = [one.end - one.start for one in traces.operations(name)]
    collectives = [one.end - one.start for one in traces.operations(name) if one.is_collective]
    found = operations_by_name(case_of_trace(name))
    assert sum(one.operations for one in found) == len([length for length in lengths if length])
    assert sum(one.seconds for one in found) == pytest.approx(sum(lengths) / 1e9, rel=1e-12)
    assert sum(one.share for one in found) == pytest.approx(1)
    assert [one.seconds for one in found] == sorted((one.seconds for one in found), reverse=True)
    assert max(one.longest_seconds for one in found) == max(lengths) / 1e9
    exchanged = sum(one.seconds for one in found if one.kind == "exchange")
    assert exchanged == pytest.approx(sum(collectives) / 1e9, rel=1e-12)


def test_one_name_of_two_kinds_is_two_rows_and_the_longest_come_first() -> None:
    spans = [*queue_of([(0, 1), (1, 3)]), *queue_of([(3, 9)], "copy")]
    found = operations_by_name(made_case(*(span._replace(name="same") for span in spans)))
    assert [(one.kind, one.operations, one.seconds, one.mean_seconds, one.longest_seconds) for one in found] == [
        ("copy", 1, 6, 6, 6),
        ("compute", 2, 3, 1.5, 2),
    ]
    assert [one.share for one in found] == [6 / 9, 3 / 9]
    assert operations_by_name(made_case()) == ()
