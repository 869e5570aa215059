"""Which Python runs, and the commands that mean this one."""

import platform
import re
import shlex
import shutil
import sys
from pathlib import Path

from parallel_core.doctor.finding import Explanation, Finding, Section

__all__ = ["examine_python", "for_this_python"]

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


def for_this_python(explanation: Explanation) -> Explanation:
    """Make a bare `pip` the one of this Python, where the shell would find another."""
    found = shutil.which("pip")
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return explanation
    own = f"{shlex.quote(sys.executable)} -m pip "
    return Explanation(explanation.cause, PIP.sub(lambda match: match[1] + own, explanation.command))


def _environment(inside: bool) -> Finding:
    if inside:
        return Finding("environment", "fine", sys.prefix)
    return Finding("environment", "fine", "none: its packages are shared by all programs of this Python")
