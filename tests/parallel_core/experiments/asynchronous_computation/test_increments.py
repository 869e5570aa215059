"""The cost model repeats the slower side."""

from parallel_core.experiments.asynchronous_computation.increments import CostModel


def test_the_cost_model_repeats_the_slower_side() -> None:
    device_bound, python_bound = CostModel(1, 3, 2), CostModel(3, 1, 2)
    assert device_bound.waiting_once(10) == device_bound.waiting_once_by_the_book(10) == 1 + 10 * 3 + 2
    assert python_bound.waiting_once(10) == 10 * 3 + 1 + 2
    assert device_bound.waiting_each(10) == python_bound.waiting_each(10) == 60
