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
    tried=3,
    queue="by XLA's own queue",
)

NEEDED = {"jax": ">=0.10.dev0", "numpy": ">=2"}
"""JAX 0.4.30, the last for NumPy 1, computes on the calling thread."""


def _installed() -> Diagnosis | None:
    """Return what to do if JAX is installed, and JAX or NumPy is too old; None if neither is."""
    if installed_version("jax") is None:
        return None
    too_old: dict[str, str] = {}
    for package, versions in NEEDED.items():
        version = installed_version(package)
        if version and not takes(versions, version):
            too_old[package] = version
    if not too_old:
        return None
    packages = " and ".join(f"{package} {version}" for package, version in too_old.items())
    cause = f"{packages} cannot be used, but jax 0.10 and NumPy 2 or later"
    if "numpy" in too_old:
        _, command = separate_environment("jax")
        cause += ": they need an environment separate from MXNet's"
        return Diagnosis(cause, command, "versions")
    return Diagnosis(cause, install_command("jax", "--upgrade"), "versions")


INSTALLATION = Installation(
    module="jax",
    engines=("async", "sync"),
    numpy=">=2",
    installed=_installed,
)
