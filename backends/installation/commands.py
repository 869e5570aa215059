"""The commands that install parallel-core with a framework: from the checkout that runs, else by the package's name."""

from pathlib import Path
from shlex import quote

from backends.registry.entry_points import SETUP

ROOT = SETUP.parent
"""The checkout, if that is what runs."""


def install_command(extra: str, options: str = "", root: Path = ROOT) -> str:
    """Return the command that installs an extra; a checkout's path works there, although no index has the package."""
    source = f"-e {quote(f'{root}[{extra}]')}" if (root / SETUP.name).is_file() else f"'parallel-core[{extra}]'"
    return " ".join(filter(None, ("pip install", options, source)))


def separate_environment(
    framework: str, suffix: str = "alone", python: str = "python3", root: Path = ROOT
) -> tuple[str, str]:
    """Return a separate environment's folder and the command that makes it, if need be the one of the Makefile."""
    makefile, folder = root / "Makefile", f".venv-{framework}"
    if (root / SETUP.name).is_file() and makefile.is_file() and f":= {folder}\n" in makefile.read_text():
        return f"{root}/{folder}", f"make -C {quote(str(root))} {folder}/ready"
    folder = f"{framework}-{suffix}"
    return folder, f"{python} -m venv {folder} && {folder}/bin/{install_command(framework, root=root)}"
