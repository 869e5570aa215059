"""Look into findings; what was found of frameworks that are fine."""

from collections.abc import Iterable

from backends.installation.probe import Probe
from parallel_core.doctor import Finding
from parallel_core.doctor.frameworks import Attempt

MXNET = Attempt("mxnet", (("mxnet", "1.9.1"),), (Probe("mxnet", "async", "1.9.1"), Probe("mxnet", "sync", "1.9.1")))
TORCH = Attempt("torch", (("torch", "2.13.0"),), (Probe("torch", "async", "2.13.0"),))

Found = tuple[str, str | None]
FINE: Found = ("fine", None)


def found(findings: Iterable[Finding]) -> dict[str, Found]:
    """Return each finding's state and command, by its name; fail if two have one name."""
    listed = [*findings]
    by_name = {one.name: (one.state, one.diagnosis and one.diagnosis.command) for one in listed}
    assert len(by_name) == len(listed)
    return by_name


def cause(finding: Finding) -> str:
    assert finding.diagnosis is not None
    return finding.diagnosis.cause
