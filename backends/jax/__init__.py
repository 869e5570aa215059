"""JAX: every launch is a compiled program, and XLA's CPU client queues it.

This module does not import jax.
"""

from backends.installation.frameworks import (
    Diagnosis,
    Installation,
    install_command,
    separate_environment,
    takes,
)
from backends.registry import Offer, installed_version

OFFER = Offer(
    title="JAX",
    backend="backends.jax.backend:JAXBackend",
    installation="backends.jax:INSTALLATION",
    kernels="backends.jax.kernels",
    profiler="backends.jax.profiler",
)

NEEDED = {"jax": ">=0.10.dev0", "numpy": ">=2"}
"""JAX 0.4.30, the last for NumPy 1, computes on the calling thread."""


def _installed() -> Diagnosis | None:
    have = {name: installed_version(name) for name in NEEDED}
    old = {
        name: version
        for name, version in have.items()
        if version and not takes(NEEDED[name], version)
    }
    if have["jax"] is None or not old:
        return None
    cause = (
        f"{' and '.join(map(' '.join, old.items()))} cannot be used, but jax 0.10 and NumPy 2 "
        "or later"
    )
    if "numpy" in old:
        return Diagnosis(
            f"{cause}: they need an environment separate from MXNet's",
            separate_environment("jax")[1],
        )
    return Diagnosis(cause, install_command("jax", "--upgrade"))


INSTALLATION = Installation(
    module="jax",
    engines=("async", "sync"),
    numpy=">=2",
    installed=_installed,
)
