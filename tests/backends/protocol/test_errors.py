"""A failed computation is told once, and nothing that follows can be mistaken for a result."""

from collections.abc import Callable

import numpy as np
import pytest

from backends import Array, Backend, ComputationError


def failing(backend: Backend) -> Callable[[Array], Array]:
    """Make a function that is accepted by the framework and fails when it runs."""
    if backend.name == "mxnet":
        import mxnet

        # The operator runs, and complains of its negative scale, when its turn comes.
        return lambda x: mxnet.np.random.normal(0, -1, x.shape, ctx=x.ctx)
    return lambda x: x.reshape(7, 11)


def array(backend: Backend, device: int = 0) -> Array:
    return backend.asarray(np.ones((2, 2), dtype=np.float32), backend.devices[device])


def test_a_failure_surfaces_when_it_is_waited_for(backend: Backend) -> None:
    x = array(backend)
    with pytest.raises(ComputationError, match=rf"{backend.name}\b.*\w+Error"):
        backend.wait(backend.launch(failing(backend), x))


def test_a_failure_surfaces_at_waitall(backend: Backend) -> None:
    x = array(backend)
    with pytest.raises(ComputationError, match=backend.name):
        kept = backend.launch(failing(backend), x)
        backend.waitall()
        del kept


def test_a_failure_surfaces_when_it_is_read(backend: Backend) -> None:
    x = array(backend)
    with pytest.raises(ComputationError, match=backend.name):
        backend.to_numpy(backend.launch(failing(backend), x))


def test_a_failure_passes_on_to_what_depends_on_it_on_another_device(backend: Backend) -> None:
    x = array(backend)
    with pytest.raises(ComputationError, match=backend.name):
        made = backend.launch(failing(backend), x)
        copy = backend.copy_to(made, backend.devices[1])
        backend.to_numpy(backend.launch(backend.ops.relu, copy))


@pytest.mark.parametrize(
    "verb",
    [
        lambda backend, x: backend.launch(backend.ops.relu, x),
        lambda backend, x: backend.wait(x),
        lambda backend, x: backend.waitall(),
        lambda backend, x: backend.copy_to(x, backend.devices[1]),
        lambda backend, x: backend.split_and_load(np.ones((2, 2)), backend.devices),
        lambda backend, x: backend.allreduce([x, x]),
        lambda backend, x: backend.asarray(np.ones(2), backend.devices[0]),
        lambda backend, x: backend.to_numpy(x),
    ],
    ids=["launch", "wait", "waitall", "copy_to", "split_and_load", "allreduce", "asarray", "to_numpy"],
)
def test_after_a_failed_wait_every_verb_refuses(backend: Backend, verb: Callable[[Backend, Array], object]) -> None:
    x = array(backend)
    made: Array = None
    with pytest.raises(ComputationError):
        made = backend.launch(failing(backend), x)
        backend.wait(made)
    with pytest.raises(ComputationError, match="refuses further work"):
        verb(backend, x if made is None else made)


def test_a_backend_loaded_anew_works(load: Callable[[int], Backend]) -> None:
    broken = load(2)
    x = array(broken)
    with pytest.raises(ComputationError):
        broken.wait(broken.launch(failing(broken), x))
    fresh = load(2)
    np.testing.assert_array_equal(fresh.to_numpy(fresh.launch(fresh.ops.add, array(fresh), 1.0)), np.full((2, 2), 2))
