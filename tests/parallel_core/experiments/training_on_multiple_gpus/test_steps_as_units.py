"""A unit is what a step launches on a device, again and as one, without the exchange; a sweep shares out its budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Backend, Device
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.training_on_multiple_gpus import repeated_steps
from parallel_core.experiments.training_on_multiple_gpus.repeated_steps import bare_epoch_seconds
from parallel_core.experiments.training_on_multiple_gpus.steps_as_units import bare_seconds, works_of_step
from parallel_core.experiments.training_on_multiple_gpus.sweeping import swept
from parallel_core.measurement.progress import listening, tell
from parallel_core.measurement.recording import Recording
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.progress import Epoch


def test_a_unit_launches_all_of_a_device_s_share_again(backend: Backend) -> None:
    first, second, _ = backend.devices
    launched: list[Device] = []
    recording = Recording(backend, on_launch=lambda device, *_: launched.append(device))
    add = backend.ops.add

    def step(backend: Backend) -> None:
        x, y = (backend.asarray(np.full(3, value, np.float32), device) for value, device in ((1, first), (2, second)))
        a = backend.launch(add, x, x)
        b = backend.launch(add, y, backend.copy_to(a, second))
        sums = backend.allreduce([a, b])
        backend.launch(add, y, sums[1])

    works = works_of_step(recording, step, times=2)
    assert [work.times for work in works] == [2, 2]
    launched.clear()
    made = [recording.to_numpy(work.launch()) for work in works]
    assert launched == [first, second]
    # b is 2 + a, of 1 + 1, and c is 2 + the sum of both. Each result is there: what is not, a compiler leaves out.
    assert [[value.tolist() for value in values] for values in made] == [[[2, 2, 2]], [[4, 4, 4], [8, 8, 8]]]
    taken = bare_seconds(backend, step, rounds=2, budget=60)
    assert len(taken) == 2
    assert min(taken) > 0
    assert len(bare_seconds(backend, step, rounds=2, budget=0)) == 1


def test_a_smaller_last_batch_counts_by_its_images(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_steps, "bare_seconds", lambda *_: (1.0, 2.0))
    data = synthetic("a test needs no more", train=20, test=1)
    epoch = Epoch(1, seconds=9.0, dispatch_seconds=1.0, images=20, losses=(1.0, 1.0, 1.0))
    assert bare_epoch_seconds(backend, 3, data, Settings(1, 8), epoch) == (2.5, 5.0)
    # The batch may be larger than the data.
    assert bare_epoch_seconds(backend, 3, data, Settings(1, 80), epoch) == (1.0, 2.0)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.floats(1, 100))
def test_points_that_take_their_shares_spend_the_budget(weights: list[float], budget: float) -> None:
    trial, told, shares = Trial(backends.load("numpy", 1), {}, 1, budget), [], []
    with pytest.MonkeyPatch.context() as patch, listening(lambda _, share: told.append(share)):
        patch.setattr(Trial, "run", lambda _, share: shares.append(share))
        for place, point in enumerate(swept(trial, "abcde"[: len(weights)], weights, share=0.8)):
            # What a body registers is timed when it ends.
            assert ("abcde".index(point), len(shares)) == (place, place)
            tell("begun", 0.0)
            tell("done", 1.0)
    assert shares == pytest.approx([0.8 * sum(weights[:count]) / sum(weights) for count in range(1, len(weights) + 1)])
    assert told == pytest.approx(sorted(told))
    assert (told[0], told[-1]) == pytest.approx((0, 1))
