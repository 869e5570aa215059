"""Series become curves by their names, and every experiment that sweeps names series that its results have."""

import pytest

from parallel_core.measurement.sweep import labelled


@pytest.mark.parametrize(
    ("quantity", "found"),
    [
        ("algbw_gb_per_s", {"star": (1.0,), "plain copy": (2.0,)}),
        ("speedup", {"": (4.0,), "wide": (5.0,)}),
        ("bytes", {"": (4.0,)}),
        ("algbw", {}),
    ],
)
def test_curves_stand_by_label(quantity: str, found: dict[str, tuple[float, ...]]) -> None:
    series = {
        "bytes": (4.0,),
        "algbw_gb_per_s star": (1.0,),
        "algbw_gb_per_s plain copy": (2.0,),
        "busbw_gb_per_s star": (3.0,),
        "speedup": (4.0,),
        "speedup wide": (5.0,),
    }
    assert labelled(series, quantity) == found
