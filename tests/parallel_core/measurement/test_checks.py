"""What exceeds its limit is marked within the noise, and impossible beyond it."""

from hypothesis import given
from hypothesis import strategies as st

from parallel_core.measurement.checks import Limit, about_excess, noise_of, why_impossible
from parallel_core.measurement.result import Case

SECONDS = st.floats(0.01, 100)


def case(name: str, seconds: float) -> Case:
    return Case(name, (seconds,), (seconds,))


@given(st.lists(SECONDS, min_size=2, max_size=4), SECONDS)
def test_a_speedup_beyond_its_limit_is_never_silent(parts: list[float], together: float) -> None:
    whole, alone = case("whole", together), [case("part", seconds) for seconds in parts]
    speedup = sum(parts) / together
    limit = Limit(len(parts), speedup / len(parts) - 1, noise_of(whole, *alone))
    told = about_excess("parallel_speedup", speedup, limit)
    assert bool(told) == (speedup > 1.01 * len(parts))
    if told:
        assert told.startswith("parallel_speedup is ")
        assert f"of at most {len(parts)}: the parts alone were slower than within the whole, by " in told
        assert limit.is_believed == ("which is within the noise (5%)" in told)
    if not limit.is_believed:
        # The mean of the parts is no longer than the longest one.
        assert why_impossible(whole, alone) is not None
        assert told


def test_an_excess_is_told_in_figures() -> None:
    assert about_excess("overlap_efficiency", 1.04, Limit(1.0, 0.04, 0.05)) == (
        "overlap_efficiency is 1.04 of at most 1: the parts alone were slower than within the whole, by 4%, which is "
        "within the noise (5%)."
    )
    told = about_excess("overlap_efficiency", 1.08, Limit(1.0, 0.08, 0.05))
    assert told is not None
    assert told.endswith("by 8%, which is beyond the noise (5%): the machine was disturbed, measure again")
