"""What exceeds its limit is marked within the noise, and impossible beyond it; series become curves by their names."""

from hypothesis import given
from hypothesis import strategies as st

from parallel_core.measurement.checks import about_excess, why_impossible
from parallel_core.measurement.confidence_intervals import Interval, decide
from parallel_core.measurement.result import Case
from parallel_core.measurement.sweep import labelled
from parallel_core.measurement.verdicts import over_rounds

SECONDS = st.floats(0.01, 100)


def case(name: str, seconds: float) -> Case:
    return Case(name, (seconds,) * 3, (seconds,) * 3)


@given(st.lists(SECONDS, min_size=2, max_size=4), SECONDS)
def test_a_speedup_beyond_its_limit_is_never_silent(parts: list[float], together: float) -> None:
    whole, alone = case("whole", together), [case("part", seconds) for seconds in parts]
    speedup = over_rounds(lambda *each: sum(each[1:]) / each[0], *(one.seconds for one in (whole, *alone)))
    told = about_excess("parallel_speedup", speedup, len(parts))
    assert bool(told) == (speedup.estimate > 1.01 * len(parts))
    if told:
        sentence, can_be = told
        assert sentence.startswith("parallel_speedup is ")
        assert f" of at most {len(parts)}" in sentence
        assert can_be == (": within the noise" in sentence) == (decide(speedup, len(parts)) != 1)
    if why_impossible(whole, alone):
        assert together < max(parts) / 1.04


def test_an_excess_is_told_in_figures() -> None:
    told = about_excess("overlap_efficiency", Interval(1.18, 0.94, 1.42), 1.0, is_share=True)
    assert told
    assert told[0].startswith("overlap_efficiency is 118 % (94–142 %) of at most 100 %: within the noise")
    # Two workers, once told to have run at the same time.
    told = about_excess("parallel_speedup", Interval(2.5, 2.2, 2.8), 2.0)
    assert told
    assert told[0].startswith("parallel_speedup is 2.50 (2.20–2.80) of at most 2, which is beyond the noise")


def test_curves_stand_by_label() -> None:
    series = dict.fromkeys(("bytes", "algbw_gb star", "algbw_gb plain copy", "speedup", "speedup wide"), (1.0,))
    assert set(labelled(series, "algbw_gb")) == {"star", "plain copy"}
    assert set(labelled(series, "speedup")) == {"", "wide"}
    assert labelled(series, "algbw") == {}
