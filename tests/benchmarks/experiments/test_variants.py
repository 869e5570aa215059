"""Every variant on CPUs is held against the default of its setting, by the figure in which it shows."""

import pytest

from backends.registry.variants import all_variants, found_on
from benchmarks.experiments.variants import contrasts, findings_of
from benchmarks.harness.side_by_side import Measured


def measured(figure: str, *values: float) -> list[Measured]:
    return [Measured({}, {figure: value}, {}) for value in values]


def test_no_variant_on_cpus_is_left_out() -> None:
    shown = {(one.backend, one.variant.name) for one in contrasts()}
    assert shown == {
        (backend, variant.name)
        for variant in all_variants()
        if not variant.default
        for backend, kinds in found_on(variant.name).items()
        if "cpu" in kinds
    }
    assert all(one.default.setting == one.variant.setting for one in contrasts())


def test_a_ratio_is_of_the_variant_over_the_default() -> None:
    by_variant = {one.variant.name: one for one in contrasts() if one.backend == "mxnet"}
    training = by_variant["temporary-space-low"]
    names = [training.name_of(variant) for variant in (training.variant, training.default)]
    figure = training.shown.figure
    low, high, ratio = findings_of(
        training, {names[0]: measured(figure, 200, 210, 220), names[1]: measured(figure, 400, 420, 440)}
    )
    assert [one.name for one in (low, high, ratio)] == [*names, training.ratio_name]
    assert [one.interval.estimate for one in (low, high, ratio)] == pytest.approx([210, 420, 0.5])


def test_efficiencies_which_may_be_zero_have_no_ratio() -> None:
    (copying, *_) = (one for one in contrasts() if one.shown.experiment == "overlap")
    zeros = measured(copying.shown.figure, 0.0, 0.0, 0.0)
    found = findings_of(copying, {copying.name_of(one): zeros for one in (copying.variant, copying.default)})
    assert [one.interval.estimate for one in found] == [0, 0]
