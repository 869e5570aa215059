"""How JAX is installed, and what goes wrong with it."""

import re
from importlib.metadata import PackageNotFoundError, version

from backends.installation.frameworks import Diagnosis, Installation

OLDEST = {"jax": (0, 10), "numpy": (2,)}
"""The versions that it takes: JAX 0.4.30, the last for NumPy 1, computes on the calling thread."""
ENVIRONMENT = "python3 -m venv jax-alone && jax-alone/bin/pip install 'parallel-core[jax]'"

KNOWN_VARIABLES = {
    "JAX_PLATFORMS": "which devices JAX looks for, in other programs; parallel-core sets its own",
    "JAX_ENABLE_X64": "whether JAX has arrays of 64 bits, in other programs; parallel-core sets its own",
    "JAX_COMPILATION_CACHE_DIR": "where JAX keeps programs that took long to compile",
    "NPROC": "how many threads XLA computes with, in other programs; parallel-core sets its own number",
}


def _installed() -> Diagnosis | None:
    have = {name: _version(name) for name in OLDEST}
    old = [f"{name} {have[name]}" for name, oldest in OLDEST.items() if _is_older(have[name], oldest)]
    if have["jax"] is None or not old:
        return None
    cause = f"{' and '.join(old)} cannot be used, but jax 0.10 and NumPy 2 or later"
    if _is_older(have["numpy"], OLDEST["numpy"]):
        return Diagnosis(f"{cause}: they need an environment of their own beside MXNet's", ENVIRONMENT)
    return Diagnosis(cause, "pip install --upgrade 'parallel-core[jax]'")


def _is_older(installed: str | None, oldest: tuple[int, ...]) -> bool:
    return installed is not None and tuple(map(int, re.findall(r"\d+", installed)[: len(oldest)])) < oldest


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


INSTALLATION = Installation(
    module="jax",
    distributions="jax",
    engines=("async", "sync"),
    numpy=">=2",
    installed=_installed,
    known_variables=KNOWN_VARIABLES,
    prefixes=("JAX_", "XLA_"),
)
