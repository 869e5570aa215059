"""What readers call a framework is declared by its backend."""

import backends
from backends.registry import title


def test_readers_know_each_framework_by_its_own_name_and_others_by_that_of_the_option() -> None:
    titles = {"jax": "JAX", "mxnet": "MXNet", "numpy": "NumPy", "torch": "PyTorch"}
    assert {name: title(name) for name in backends.names() if name in titles} == titles
    assert title("mine") == "mine"
