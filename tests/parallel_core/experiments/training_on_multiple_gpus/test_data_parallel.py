"""The training experiment reports its epochs; what a step computes is tested with the training."""

import pytest

import backends
import parallel_core
from backends import Backend
from parallel_core.experiments.training_on_multiple_gpus import data_parallel
from parallel_core.training import loop as training_loop
from parallel_core.training.batches import Settings
from tests.parallel_core.experiments.small import small

SMALL = small("data-parallel")


def test_the_training_experiment_reports_epochs(backend: Backend) -> None:
    result = parallel_core.run_data_parallel(backend, **SMALL)
    assert result.data == "synthetic images, since a test needs no more"
    assert len(result.series["test_accuracy"]) == 2
    assert len(result.series["loss"]) == 2 * 5
    assert result.metrics["test_accuracy"] == result.series["test_accuracy"][-1]
    assert result.metrics["best_test_accuracy"] == max(result.series["test_accuracy"])
    assert result.metrics["images_per_second"] == pytest.approx(300 / result.metrics["seconds_per_epoch"])
    assert result.checks["max_replica_difference"] == 0
    assert min(result.cases[0].bare_seconds) > 0
    assert result.parameters["batch_size"] == 64


def test_devices_that_differ_after_training_make_the_result_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_parallel, "largest_replica_difference", lambda *_: 1e-9)
    backend = backends.load("numpy", 2, threads_per_device=1)
    result = parallel_core.run_data_parallel(backend, data=SMALL["data"], settings=Settings(1, 16, limit=1))
    assert result.problems == ("the devices' parameters differ after training, by 1.0e-09 of the largest",)
    assert not result.is_merely_disturbed


@pytest.mark.parametrize(("limit", "tested"), [(None, 20), (1, 16)])
def test_a_limited_training_is_tested_on_as_few_images(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, limit: int | None, tested: int
) -> None:
    counted = []
    monkeypatch.setattr(training_loop, "evaluate", lambda _, __, data: counted.append(len(data.test_labels)) or 0.5)
    result = parallel_core.run_data_parallel(backend, data=SMALL["data"], settings=Settings(1, 16, limit=limit))
    # The check against NumPy has a single one.
    assert counted == [tested, 1]
    assert result.bands == {"test_accuracy": "learnt"}
