"""Which Python runs, whether the packages it has are those that parallel-core requires, and the `pip` that is its own.

What is required is read from parallel-core's metadata, which is made from setup.cfg.
"""

import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

import parallel_core
from parallel_core.doctor.finding import Diagnosis, Finding, Section

__all__ = ["examine_packages", "examine_python", "for_this_python"]

BARE_PIP = re.compile(r"(^|&& )pip ")
PACKAGE = "parallel-core"


def examine_python() -> Section:
    """Report the version of Python, its executable and its virtual environment."""
    # Conda's environments have a Python of their own, which this folder shows.
    inside = sys.prefix != sys.base_prefix or (Path(sys.prefix) / "conda-meta").is_dir()
    figures = {
        "version": platform.python_version(),
        "executable": sys.executable,
        "environment": sys.prefix if inside else None,
    }
    text = f"{platform.python_implementation()} {platform.python_version()}: {sys.executable}"
    shared = "none: its packages are shared by all programs of this Python"
    return Section(
        "Python",
        (
            Finding("interpreter", "fine", text, None, figures),
            Finding("environment", "fine", sys.prefix if inside else shared),
        ),
    )


def for_this_python(diagnosis: Diagnosis) -> Diagnosis:
    """Replace a bare `pip` by the one of this Python, if the shell would find another."""
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return diagnosis
    own = f"{shlex.quote(sys.executable)} -m pip "
    return replace(diagnosis, command=BARE_PIP.sub(lambda match: match[1] + own, diagnosis.command))


def examine_packages() -> Section:
    """Compare the installed packages with those that parallel-core requires."""
    folder, own_version = str(Path(parallel_core.__file__).parent), version(PACKAGE)
    required = [Requirement(line) for line in requires(PACKAGE) or ()]
    base = [one for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    return Section(
        PACKAGE,
        (
            Finding(PACKAGE, "fine", f"{own_version} in {folder}", None, {"version": own_version, "path": folder}),
            _compare("required packages", base),
        ),
    )


def _compare(name: str, required: Sequence[Requirement]) -> Finding:
    installed = {one.name: _version(one.name) for one in required}
    missing = [one for one in required if installed[one.name] is None]
    wrong = [one for one in required if (have := installed[one.name]) and not one.specifier.contains(have, True)]
    if not missing and not wrong:
        return Finding(name, "fine", f"{len(installed)}, in versions that can be used", None, installed)
    text = ", ".join(
        [f"{one.name} is not installed" for one in missing]
        + [f"{one.name} {installed[one.name]} is not {one.specifier}" for one in wrong]
    )
    # Without its marker.
    needed = " ".join(shlex.quote(str(one).partition(";")[0].strip()) for one in (*missing, *wrong))
    cause = f"{PACKAGE} requires other versions: {text}" if wrong else text
    diagnosis = Diagnosis(cause, f"pip install {needed}")
    return Finding(name, "broken", text, diagnosis, installed)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
