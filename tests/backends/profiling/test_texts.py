"""Compressed texts are the texts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backends.profiling.texts import BLOCK, Texts


@given(st.lists(st.lists(st.binary(max_size=20), max_size=4), max_size=4), st.data())
def test_columns_of_texts_are_the_texts(parts: list[list[bytes]], data: st.DataObject) -> None:
    texts = [text for part in parts for text in part]
    column = Texts.joined(Texts.of(part) for part in parts)
    assert len(column) == len(texts)
    assert column.tolist() == texts
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1))) if texts else []
    selected = column[np.array(rows, np.intp)]
    assert selected.tolist() == [texts[row] for row in rows]
    assert column[1:3].tolist() == texts[1:3]
    assert selected.holding(b"a").tolist() == [b"a" in texts[row] for row in rows]


def test_many_texts_are_compressed_some_at_a_time() -> None:
    texts = [b'{"run_id": "%d"}' % number for number in range(2 * BLOCK + 5)]
    column = Texts.of(texts)
    assert column.tolist() == texts
    assert [len(own) for _, own in column.by_block()] == [BLOCK, BLOCK, 5]
