"""Numbers are written so that nobody stumbles over them."""

import pytest

from parallel_core.wording import percent


@pytest.mark.parametrize(
    ("share", "written"), [(0.5, "50%"), (-0.5, "−50%"), (-0.001, "0%"), (0.0, "0%"), (1.234, "123%")]
)
def test_percent_has_a_sign_where_it_is_negative(share: float, written: str) -> None:
    assert percent(share) == written


@pytest.mark.parametrize(("share", "written"), [(0.5, "+50%"), (-0.5, "−50%"), (-0.001, "+0%")])
def test_a_difference_has_a_sign(share: float, written: str) -> None:
    assert percent(share, "+") == written
