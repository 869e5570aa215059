"""Finds the Python that runs a backend: this one, or that of an environment that `make` made beside the sources."""

import sys
from importlib.util import find_spec
from pathlib import Path

from backends.installation.frameworks import installation_of

__all__ = ["CHECKOUT", "python_with"]

CHECKOUT = Path(__file__).resolve().parents[2]


def python_with(backend: str, checkout: Path = CHECKOUT) -> str:
    """Return the Python that has a backend's framework: this one if it does, or if none beside the sources does.

    What `make` made is `.venv-NAME` for a framework that needs a separate environment, and `.venv` for the rest.
    """
    module = installation_of(backend).module
    if module and find_spec(module) is None:
        for folder in (checkout / f".venv-{backend}", checkout / ".venv"):
            python = folder / "bin" / "python"
            if python.exists() and any(folder.glob(f"lib/python*/site-packages/{module}")):
                return str(python)
    return sys.executable
