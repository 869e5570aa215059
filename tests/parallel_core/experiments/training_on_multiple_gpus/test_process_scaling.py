"""What several processes cost and gain is found of what was trained, however little that was."""

from dataclasses import replace
from itertools import pairwise

import pytest

import backends
from backends.process_groups import Group, GroupedBackend
from parallel_core import run_data_parallel
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus import process_scaling as scaling
from parallel_core.measurement.result import Result
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.lenet import initial_parameters
from tests.backends.process_groups.threads import together
from tests.parallel_core.experiments.runner.pretended import pretended

# Two batches of 32: fewer than the steps that are asked for.
DATA = synthetic("a test needs no more", train=40, test=10)


def trained(processes: int, calls: list[int]) -> list[Result]:
    """Train on some ranks, and return their results; `calls` are what progress was reported."""

    def program(group: Group) -> Result:
        local = backends.load("numpy", 1, threads_per_device=1)
        backend = GroupedBackend(local, group, (1,) * processes, calls.append)
        return run_data_parallel(backend, data=DATA, settings=Settings(epochs=1, batch_size=32))

    return together(processes, program)


def test_every_rank_has_the_first_one_s_figures_of_the_steps_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    real = scaling.train_epoch

    def of_known_length(*args: object, **named: object) -> object:
        epoch = real(*args, **named)  # type: ignore[arg-type]
        assert len(epoch.losses) <= 2
        return replace(epoch, seconds=float(len(epoch.losses)))

    monkeypatch.setattr(scaling, "train_epoch", of_known_length)
    monkeypatch.setattr(scaling, "TIMED_SECONDS", 0)
    calls: list[int] = []
    first, second = trained(2, calls)
    size = sum(array.nbytes for array in initial_parameters())
    for result in (first, second):
        assert result.metrics["step_seconds"] == result.metrics["lone_step_seconds"] == pytest.approx(1)
        assert result.metrics["scaling_efficiency"] == pytest.approx(0.5)
        assert result.metrics["exposed_exchange_seconds"] == 0
        assert result.metrics["exchanged_bytes"] == 2 * size
        assert result.parameters["processes"] == 2
    assert first.metric_intervals["exchange_seconds"] == second.metric_intervals["exchange_seconds"]
    # Two ranks of the same program report to one list, and are never apart by more than one exchange.
    assert all(later >= earlier - 1 for earlier, later in pairwise(calls))


def test_a_single_process_has_no_such_figures() -> None:
    (result,) = trained(1, [])
    assert "scaling_efficiency" not in result.metrics
    assert result.problems == ()


@pytest.mark.parametrize(
    ("step", "silent", "one", "exchange", "bands"),
    [
        (0.06, 0.03, 0.1, 0.1, ("faster", "partly")),
        (0.2, 0.2, 0.1, 0.3, ("slower", "hidden")),
        (0.1, 0.07, 0.101, 0.03, (None, "exposed")),
        (0.1, 0.05, 0.19, 0.05, ("scaled", "exposed")),
        (0.4, 0.1, 0.6, 0.1, ("faster", "waiting")),
    ],
)
def test_what_the_times_of_a_step_mean(
    step: float, silent: float, one: float, exchange: float, bands: tuple[str | None, ...]
) -> None:
    ways = {"together": step, "without exchange": silent, "one process": one, "exchange only": exchange}
    timed = {name: [seconds * near for near in (1, 1.001, 0.999) * 2] for name, seconds in ways.items()}
    trial = Trial(backends.load("numpy", 1), {})
    scaling.find_figures(trial, timed, 2)
    found = pretended(trial, *scaling.SCALING)
    assert found.metrics["exposed_exchange_seconds"] == pytest.approx(step - silent)
    assert tuple(found.bands.values()) == bands
