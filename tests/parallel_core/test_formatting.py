"""Numbers are written so that nobody stumbles over them."""

import pytest

from parallel_core.formatting import engine_in_words, percent


@pytest.mark.parametrize(
    ("share", "written"), [(0.5, "50%"), (-0.5, "−50%"), (-0.001, "0%"), (0.0, "0%"), (1.234, "123%")]
)
def test_percent_has_a_sign_where_it_is_negative(share: float, written: str) -> None:
    assert percent(share) == written


@pytest.mark.parametrize(("share", "written"), [(0.5, "+50%"), (-0.5, "−50%"), (-0.001, "+0%")])
def test_a_difference_has_a_sign(share: float, written: str) -> None:
    assert percent(share, "+") == written


@pytest.mark.parametrize(
    ("variants", "written"),
    [({}, ""), ({"variants": []}, ""), ({"variants": ["a"]}, " with a"), ({"variants": ["a", "b"]}, " with a and b")],
)
def test_an_engine_is_written_with_its_variants(variants: dict[str, list[str]], written: str) -> None:
    assert engine_in_words({"engine": "async", **variants}) == f"async engine{written}"
