"""Finds the Python that runs a backend: this one, or that of an environment that `make` made beside
the sources.
"""

import sys
from pathlib import Path

from backends.installation.frameworks import installation_of, is_installed

CHECKOUT = Path(__file__).resolve().parents[2]


def python_with(backend: str, checkout: Path = CHECKOUT) -> str:
    """Return the Python that has a backend's framework: this one if it does, or if none beside the
    sources does.

    What `make` made is `.venv-NAME` for a framework that needs a separate environment, and `.venv`
    for the rest. What it has begun and not finished, with a `ready.log` and no `ready`, is left
    out.
    """
    module = installation_of(backend).module
    if not is_installed(backend):
        for folder in (checkout / f".venv-{backend}", checkout / ".venv"):
            python = folder / "bin" / "python"
            is_unfinished = (folder / "ready.log").exists() and not (folder / "ready").exists()
            if (
                not is_unfinished
                and python.exists()
                and any(folder.glob(f"lib/python*/site-packages/{module}"))
            ):
                return str(python)
    return sys.executable
