"""How JAX is installed, and what goes wrong with it."""

from backends.installation.frameworks import Diagnosis, Installation, takes
from backends.registry import installed_version

NEEDED = {"jax": ">=0.10.dev0", "numpy": ">=2"}
"""JAX 0.4.30, the last for NumPy 1, computes on the calling thread."""
ENVIRONMENT = "python3 -m venv jax-alone && jax-alone/bin/pip install 'parallel-core[jax]'"

KNOWN_VARIABLES = {
    "JAX_PLATFORMS": "which devices JAX looks for, in other programs; parallel-core sets its own",
    "JAX_ENABLE_X64": "whether JAX has arrays of 64 bits, in other programs; parallel-core sets its own",
    "JAX_COMPILATION_CACHE_DIR": "where JAX keeps programs that took long to compile",
    "NPROC": "how many threads XLA computes with, in other programs; parallel-core sets its own number",
}


def _installed() -> Diagnosis | None:
    have = {name: installed_version(name) for name in NEEDED}
    old = {name: version for name, version in have.items() if version and not takes(NEEDED[name], version)}
    if have["jax"] is None or not old:
        return None
    cause = f"{' and '.join(map(' '.join, old.items()))} cannot be used, but jax 0.10 and NumPy 2 or later"
    if "numpy" in old:
        return Diagnosis(f"{cause}: they need an environment of their own beside MXNet's", ENVIRONMENT)
    return Diagnosis(cause, "pip install --upgrade 'parallel-core[jax]'")


INSTALLATION = Installation(
    module="jax",
    distributions="jax",
    engines=("async", "sync"),
    numpy=">=2",
    installed=_installed,
    known_variables=KNOWN_VARIABLES,
    prefixes=("JAX_", "XLA_"),
)
