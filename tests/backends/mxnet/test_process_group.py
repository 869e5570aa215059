"""A build of MXNet without a parameter server is refused before anybody waits for one."""

from types import SimpleNamespace

import pytest

from backends import BackendError
from backends.mxnet.process_group import MXNetGroup


def test_mxnet_s_wheel_for_arm_sums_between_no_processes() -> None:
    features = SimpleNamespace(is_enabled=lambda feature: feature != "DIST_KVSTORE")
    wheel_for_arm = SimpleNamespace(runtime=SimpleNamespace(Features=lambda: features))
    with pytest.raises(BackendError, match=r"ARM .* --backend torch"):
        MXNetGroup(wheel_for_arm, None)
