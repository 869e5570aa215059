"""Look into findings; attempts whose framework is fine."""

from collections.abc import Iterable

from backends.installation.probe import Probe
from parallel_core.doctor import Finding
from parallel_core.doctor.frameworks import Attempt

MXNET = Attempt("mxnet", (Probe("mxnet", "async", "1.9.1"), Probe("mxnet", "sync", "1.9.1")))

StateAndCommand = tuple[str, str | None]
FINE: StateAndCommand = ("fine", None)


def by_name(findings: Iterable[Finding]) -> dict[str, StateAndCommand]:
    """Return each finding's state and command, by its name; fail if two have one name."""
    states: dict[str, StateAndCommand] = {}
    for finding in findings:
        assert finding.name not in states
        states[finding.name] = (finding.state, command(finding))
    return states


def command(finding: Finding) -> str | None:
    """Return the command that helps against a finding, if there is one."""
    return finding.cause_and_command["command"]


def code(finding: Finding) -> str | None:
    """Return the code of what a finding comes from."""
    return finding.cause_and_command["code"]


def cause(finding: Finding) -> str:
    """Return what a finding comes from, which must be known."""
    assert finding.diagnosis is not None
    return finding.diagnosis.cause
