"""Packages are compared with what is required, and commands are for the Python that runs."""

from pathlib import Path

import pytest

from parallel_core.doctor import python
from parallel_core.doctor.finding import Diagnosis, Section
from tests.parallel_core.doctor.findings import command, named, states


def required(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Section:
    monkeypatch.setattr(python, "requires", lambda name: list(lines))
    return python.examine_packages()


def test_packages_are_compared_with_what_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    section = required(monkeypatch, "click>=8", "click>=99; python_version < '3'", "click>=999; extra == 'torch'")
    assert set(states(section).values()) == {"fine"}
    finding = named(required(monkeypatch, "click>=999", "rich"), "required packages")
    assert finding.state == "broken"
    assert command(finding) == "pip install 'click>=999'"
    finding = named(required(monkeypatch, "rich", "no-such-package>=2"), "required packages")
    assert finding.state == "broken"
    assert command(finding) == "pip install 'no-such-package>=2'"


def test_commands_are_for_this_python_if_the_shell_s_pip_is_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "my python"
    monkeypatch.setattr(python.sys, "executable", str(own))
    monkeypatch.setenv("PATH", "")
    bare_pip = "pip uninstall --yes mxnet && pip install numpy"
    diagnosis = python.for_this_python(Diagnosis("a cause", bare_pip))
    assert diagnosis.command == f"'{own}' -m pip uninstall --yes mxnet && '{own}' -m pip install numpy"
    # A pip beside the Python that runs is its own.
    (tmp_path / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert python.for_this_python(Diagnosis("a cause", bare_pip)).command == bare_pip
    other = Diagnosis("a cause", "elsewhere/bin/pip install numpy")
    monkeypatch.setenv("PATH", "")
    assert python.for_this_python(other) == other
