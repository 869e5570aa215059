"""On what something was measured: machine, versions, kernels, commit and day, as a line for the reader."""

from collections.abc import Mapping
from typing import Any

from parallel_core.comparison.cells import Comparison
from parallel_core.system.formatting import library_in_words

__all__ = ["libraries_in_words", "provenance", "provenance_of_comparison"]


def provenance(written: Mapping[str, Any]) -> str:
    """Write what the JSON of measurements says of where it comes from; older files say nothing of some of it."""
    machine, kernels = written["machine"], written.get("kernels", {})
    frameworks = [
        f"{name} {version}" + (f" ({'; '.join(kernels[name])})" if kernels.get(name) else "")
        for name, version in sorted(written.get("versions", {}).items())
    ]
    commit = machine.get("commit")
    return ", ".join(
        [
            machine["processor"],
            f"{machine['cores']} cores",
            machine["system"],
            f"Python {machine['python']}",
            *frameworks,
            f"commit {commit}" if commit else "commit not recorded",
            machine["utc"].partition("T")[0],
            *(["with --quick: a first look"] if written.get("quick") else []),
        ]
    )


def provenance_of_comparison(comparison: Comparison) -> str:
    """Write where a comparison comes from; what its first result of each framework says holds for all."""
    backends = {results.cell.backend: results.valid[0].backend for results in comparison.cells if results.valid}
    return provenance(
        {
            "machine": {**comparison.machine, "utc": comparison.utc},
            "versions": {name: backend["version"] for name, backend in backends.items()},
            "kernels": {name: libraries_in_words(backend) for name, backend in backends.items()},
        }
    )


def libraries_in_words(backend: Mapping[str, Any]) -> list[str]:
    """Write the libraries that computed, of the object under a result's `backend`."""
    return [library_in_words(kernels) for kernels in backend.get("kernels", ())]
