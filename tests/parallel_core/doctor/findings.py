"""Look into sections and findings; what was found of frameworks that are fine."""

from backends.installation.probe import Probe
from parallel_core.doctor.finding import Finding, Section
from parallel_core.doctor.frameworks import Attempt

__all__ = ["MXNET", "TORCH", "command", "named", "states"]

MXNET = Attempt("mxnet", (("mxnet", "1.9.1"),), (Probe("mxnet", "async", "1.9.1"), Probe("mxnet", "sync", "1.9.1")))
TORCH = Attempt("torch", (("torch", "2.13.0"),), (Probe("torch", "async", "2.13.0"),))


def states(section: Section) -> dict[str, str]:
    return {finding.name: finding.state for finding in section.findings}


def named(section: Section, name: str) -> Finding:
    return next(finding for finding in section.findings if finding.name == name)


def command(finding: Finding) -> str:
    assert finding.diagnosis is not None
    return finding.diagnosis.command
