"""Slices in columns are the same slices: in order, selected, and by their arguments."""

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling.slices import Slice, Slices

names = st.sampled_from(["", "op", "é", "void kernel<4>(float*)"])
arguments = st.none() | st.dictionaries(
    st.sampled_from(["stream", "device", "External id"]), st.integers() | st.text(max_size=3) | st.none(), max_size=3
)


def encoded(args: dict[str, Any] | None) -> bytes:
    return b"" if args is None else json.dumps(args).encode()


slices = st.builds(
    Slice,
    names,
    st.sampled_from(["kernel", "cpu_op"]),
    st.integers(0, 2) | st.just("Spans"),
    st.integers(0, 2) | st.just(2**64 - 1),
    st.integers(0, 10**18),
    st.integers(0, 10**18),
    arguments.map(encoded) | st.sampled_from([b'"none"', b'{"stream": NaN}', b"[1]"]),
)


@given(st.lists(slices, max_size=8), st.data())
def test_columns_hold_the_slices(given_ones: list[Slice], data: st.DataObject) -> None:
    columns = Slices.of(given_ones)
    assert list(columns) == given_ones
    assert [columns[place] for place in range(len(columns))] == given_ones
    assert columns == given_ones == Slices.of(columns)
    places = data.draw(st.lists(st.integers(0, len(given_ones) - 1), unique=True)) if given_ones else []
    selected = columns.select(np.array(places, np.intp))
    assert list(selected) == [given_ones[place] for place in places]
    assert list(columns[1:3]) == given_ones[1:3]
    assert list(columns.select(columns.has_category("kernel"))) == [
        one for one in given_ones if one.category == "kernel"
    ]
    assert sum(columns.counts().values()) == len(given_ones)


@given(st.lists(slices, max_size=8))
def test_arguments_of_many_are_those_of_each(given_ones: list[Slice]) -> None:
    found = Slices.of(given_ones).arguments("stream", "External id")
    # The one that is no JSON holds a number that equals nothing.
    assert repr(found) == repr([(one.args.get("stream"), one.args.get("External id")) for one in given_ones])
