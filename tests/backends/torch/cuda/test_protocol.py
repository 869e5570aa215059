"""The protocol's own tests on made-up GPUs: whole ones, and two streams of one with a CPU device;
without races.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends import Backend
from tests.backends.protocol.test_aliases import *  # noqa: F403
from tests.backends.protocol.test_allreduce import *  # noqa: F403
from tests.backends.protocol.test_dtypes import *  # noqa: F403
from tests.backends.protocol.test_errors import *  # noqa: F403
from tests.backends.protocol.test_foreign_devices import *  # noqa: F403
from tests.backends.protocol.test_memory import *  # noqa: F403
from tests.backends.protocol.test_units import *  # noqa: F403
from tests.backends.protocol.test_verbs import *  # noqa: F403

pytestmark = pytest.mark.parametrize("engine", ["async"])

NAMES = {1: "gpu:1", 2: "gpu:1,gpu:0", 3: "gpu:0/0,cpu:1,gpu:0/1"}
"""By the number of devices."""
OF_CPUS = {
    "copy to the host",
    "load on the host",
    "test_copies_that_replace_one_value_again_and_again_take_the_memory_of_few",
}
"""Requests that are wrong on CPU devices only, and a test of the memory that the process holds."""


@pytest.fixture
def load(
    on_made_up_gpus: Callable[..., tuple[Backend, Any]], request: pytest.FixtureRequest
) -> Iterator[Callable[[int], Backend]]:
    name_of_request = request.node.callspec.params.get("name")
    if request.node.originalname in OF_CPUS or name_of_request in OF_CPUS:
        pytest.skip("nothing that streams of GPUs could get wrong")
    used_cudas = []

    def load_on_gpus(devices: int) -> Backend:
        """Load PyTorch for this number of made-up GPUs."""
        backend, cuda = on_made_up_gpus(NAMES[devices])
        used_cudas.append(cuda)
        return backend

    yield load_on_gpus
    for cuda in used_cudas:
        assert cuda.races == []
