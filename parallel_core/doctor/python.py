"""Which Python runs, and the commands that mean this one."""

import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

import parallel_core
from parallel_core.doctor.finding import Diagnosis, Finding, FindingState, Section

__all__ = ["examine_packages", "examine_python", "for_this_python"]


PIP = re.compile(r"(^|&& )pip ")


def examine_python() -> Section:
    """Tell the version of Python, its executable and its virtual environment."""
    version = platform.python_version()
    # Conda's environments have a Python of their own, and say so by this folder.
    inside = sys.prefix != sys.base_prefix or (Path(sys.prefix) / "conda-meta").is_dir()
    figures = {"version": version, "executable": sys.executable, "environment": sys.prefix if inside else None}
    interpreter = Finding(
        "interpreter", "fine", f"{platform.python_implementation()} {version}: {sys.executable}", None, figures
    )
    return Section("Python", (interpreter, _environment(inside)))


def for_this_python(explanation: Diagnosis) -> Diagnosis:
    """Make a bare `pip` the one of this Python, where the shell would find another."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return explanation
    own = f"{shlex.quote(sys.executable)} -m pip "
    return Diagnosis(explanation.cause, PIP.sub(lambda match: match[1] + own, explanation.command))


def _environment(inside: bool) -> Finding:
    if inside:
        return Finding("environment", "fine", sys.prefix)
    return Finding("environment", "fine", "none: its packages are shared by all programs of this Python")


PACKAGE = "parallel-core"


PLOTTING = "plot"
"""The one extra that is no framework, and is not for developers only."""


def examine_packages() -> Section:
    """Hold what is installed against what parallel-core's metadata, made from setup.cfg, requires."""
    folder, own_version = str(Path(parallel_core.__file__).parent), version(PACKAGE)
    figures = {"version": own_version, "path": folder}
    required = [Requirement(line) for line in requires(PACKAGE) or ()]
    base = [one for one in required if _wanted(one, "")]
    plotting = [one for one in required if _wanted(one, PLOTTING) and one not in base]
    return Section(
        PACKAGE,
        (
            Finding(PACKAGE, "fine", f"{own_version} in {folder}", None, figures),
            _compare("required packages", base, "broken"),
            _compare("plotting packages", plotting, "absent"),
        ),
    )


def _wanted(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _compare(name: str, required: Sequence[Requirement], where_missing: FindingState) -> Finding:
    found = {one.name: _version(one.name) for one in required}
    missing = [one for one in required if found[one.name] is None]
    wrong = [one for one in required if (have := found[one.name]) and not one.specifier.contains(have, True)]
    if not missing and not wrong:
        return Finding(name, "fine", f"{len(found)}, in versions that can be used", None, found)
    told = [f"{one.name} is not installed" for one in missing]
    told += [f"{one.name} {found[one.name]} is not {one.specifier}" for one in wrong]
    needed = " ".join(shlex.quote(str(_bare(one))) for one in (*missing, *wrong))
    advice = Diagnosis(f"{PACKAGE} requires other versions: {', '.join(told)}", f"pip install {needed}")
    if not wrong:
        advice = Diagnosis(", ".join(told), advice.command)
    return Finding(name, "broken" if wrong else where_missing, ", ".join(told), advice, found)


def _bare(requirement: Requirement) -> Requirement:
    bare = Requirement(str(requirement))
    bare.marker = None
    return bare


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
