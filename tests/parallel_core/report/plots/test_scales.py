"""Scales: values keep their order between the ends, and the marks are few, round and on the scale."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.report.plots.scales import Axis, Scale, around, from_zero, write_seconds

VALUES = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=5)


@given(VALUES, st.booleans())
def test_places_are_between_the_ends_and_in_order(values: list[float], log: bool) -> None:
    scale = around(values) if log else from_zero(values)
    places = [scale.place(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)


@given(VALUES, st.booleans())
def test_marks_are_on_the_scale_and_neither_none_nor_many(values: list[float], log: bool) -> None:
    scale = around(values) if log else from_zero(values)
    marks = scale.marks
    assert list(marks) == sorted(set(marks))
    assert all(scale.low <= mark <= scale.high * (1 + 1e-9) for mark in marks)
    assert 2 <= len(marks) <= 9


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        (Scale(0, 0.9), ["0", "0.2", "0.4", "0.6", "0.8"]),
        (Scale(-0.1, 0.9), ["0", "0.2", "0.4", "0.6", "0.8"]),
        (Scale(0.1, 3, log=True), ["0.1", "0.2", "0.5", "1", "2"]),
        (Scale(0.95, 1.05, log=True), ["0.96", "0.98", "1", "1.02", "1.04"]),
        (Scale(1e-5, 20, log=True), ["1e-05", "0.001", "0.1", "10"]),
    ],
)
def test_marks_are_round(scale: Scale, labels: list[str]) -> None:
    assert [label for _, label in Axis("", scale, lambda value: f"{value:.4g}").ticks] == labels


def test_a_product_is_a_sum_of_lengths_on_a_logarithmic_scale() -> None:
    scale = around((0.25, 1.0, 2.0))
    assert scale.place(2) - scale.place(1) == pytest.approx(scale.place(1) - scale.place(0.5))
    assert scale.place(math.nextafter(scale.low, 0)) == 0
    assert scale.place(1e9) == 1


def test_marked_times_have_no_needless_digits() -> None:
    written = map(write_seconds, (0, 2e-5, 0.05, -0.1, -0.0025, 20))
    assert list(written) == ["0 ms", "20 μs", "50 ms", "−100 ms", "−2.5 ms", "20 s"]
