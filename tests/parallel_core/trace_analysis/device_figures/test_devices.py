"""The time of each device, divided, and its operations by name."""

import pytest

from parallel_core.trace_analysis.device_figures.devices import device_figures, operations_by_name
from tests.parallel_core.trace_analysis.synthetic import made_case, queue_of
from tests.parallel_core.trace_analysis.traces import case_of_trace


def test_holistic_trace_analysis_says_the_same_but_for_its_rounding() -> None:
    (found,) = device_figures(case_of_trace("ddp"))
    # As counted from the file, nanosecond by nanosecond.
    assert (found.operations, found.seconds, found.idle_seconds) == (842, 0.650741473, 0.583905775)
    assert (found.compute_seconds, found.non_compute_seconds) == (0.020733021, 0.046102677)
    assert (found.collective_seconds, found.hidden_collective_seconds) == (0.046876493, 0.001410705)
    # HTA 0.5.0 with all steps, in microseconds that it rounds down, a start and a duration each.
    at_most = 2e-6 * found.operations
    assert found.idle_seconds == pytest.approx(584_696e-6, abs=at_most)
    assert found.compute_seconds == pytest.approx(20_214e-6, abs=at_most)
    assert found.hidden_collective_share == pytest.approx(0.0290, abs=0.003)


def test_copies_and_fills_are_neither_computation_nor_collectives() -> None:
    fill = queue_of([(4, 6)])[0]._replace(operator="Memset (Device)")
    (found,) = device_figures(made_case(*queue_of([(0, 2)]), *queue_of([(2, 4)], "copy"), fill))
    assert (found.compute_seconds, found.non_compute_seconds, found.idle_seconds) == (2, 4, 0)
    assert (found.collective_seconds, found.hidden_collective_share) == (0, None)


def test_devices_have_their_own_figures_and_the_host_none() -> None:
    spans = (*queue_of([(0, 4)], "exchange", "gpu:0"), *queue_of([(0, 4)], device="gpu:1"))
    found = device_figures(made_case(*spans, *queue_of([(0, 9)], "host", "host")))
    assert [(one.device, one.hidden_collective_share) for one in found] == [("gpu:0", 0), ("gpu:1", None)]


def test_one_name_of_two_kinds_is_two_rows_and_the_longest_come_first() -> None:
    spans = [*queue_of([(0, 1), (1, 3)]), *queue_of([(3, 9)], "copy")]
    found = operations_by_name(made_case(*(span._replace(name="same") for span in spans)))
    assert [(one.kind, one.operations, one.seconds, one.mean_seconds, one.longest_seconds) for one in found] == [
        ("copy", 1, 6, 6, 6),
        ("compute", 2, 3, 1.5, 2),
    ]
    assert [one.share for one in found] == [6 / 9, 3 / 9]
    assert operations_by_name(made_case()) == ()
