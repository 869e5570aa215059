"""A backend needs an engine between processes to join a group."""

import pytest

from backends import BackendError
from backends.process_groups import check_group


def test_a_backend_without_an_engine_between_processes_is_refused() -> None:
    with pytest.raises(BackendError, match=r"numpy has no engine between processes \(known: jax, mxnet, torch\)"):
        check_group("numpy")
