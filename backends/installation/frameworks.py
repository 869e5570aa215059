"""Installations of frameworks: what each says of its own, the commands for it, its import.

It declares an `Installation`, and imports nothing for it. A backend without one is tried with its
own first engine, and its failures are shown as they are. A framework is imported under the
environment variables that it reads once, then; if it is already imported with other settings, it is
refused.
"""

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Literal

from backends.errors import BackendError
from backends.protocol import FrameworkSettings
from backends.registry import installed_version, offered, title
from backends.registry.loading import SETUP

ROOT = SETUP.parent
"""The checkout, if that is what runs."""
_imported_with: dict[str, FrameworkSettings] = {}


Code = Literal[
    "build-for-cpus",
    "data-absent",
    "data-damaged",
    "driver-missing",
    "driver-not-loaded",
    "driver-silent",
    "driver-too-old",
    "driver-updated",
    "gpus-hidden",
    "libraries-changed",
    "libraries-missing",
    "machine-busy",
    "no-code-for-gpu",
    "no-framework",
    "no-gpus-found",
    "not-installed",
    "other-nccl",
    "slow-kernels",
    "unknown",
    "untried",
    "variables",
    "versions",
]
"""What a framework or a machine suffers from, for programs: those of `doctor --json` too."""


@dataclass(frozen=True)
class Diagnosis:
    """A cause in one sentence, without a full stop, and the exact command that fixes it: empty if
    that is not known.
    """

    cause: str
    command: str = ""
    code: Code = "unknown"

    def __str__(self) -> str:
        return f"{self.cause}: {self.command}" if self.command else self.cause


class InstallationError(BackendError):
    """A framework cannot be used as it is installed, and the diagnosis says what to do."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(str(diagnosis))
        self.diagnosis = diagnosis


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver or a framework lists it, which may be unable to compute on it.

    None is what is not reported. `driver` is the driver's version.
    """

    index: int
    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    driver: str | None = None


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a framework, and why it can use none.

    `cuda` is what the framework was built for, empty for a CPU build.
    """

    cuda: str = ""
    devices: tuple[Gpu, ...] = ()
    failure: Diagnosis | None = None


KnownFailures = Mapping[str, Diagnosis | Callable[[re.Match[str]], Diagnosis | None]]


@dataclass(frozen=True)
class Installation:
    """The installation of a framework: its commands, and what goes wrong with it.

    `module` is what its backend imports, empty if that is not known. `engines` are those that are
    worth trying; none is the backend's own first choice.
    """

    module: str = ""
    engines: tuple[str, ...] = ()
    numpy: str = ""
    """Which versions of NumPy it takes, such as `<1.24`: two frameworks may need an environment
    each.
    """
    absent: Callable[[tuple[int, ...]], Diagnosis | None] = lambda _: None
    """What to do if it is not installed, for a version of Python; None is to install its extra of
    parallel-core.
    """
    installed: Callable[[], Diagnosis | None] = lambda: None
    """What is wrong with the versions that are installed, if that is known before it is
    imported.
    """
    known_failures: KnownFailures = field(default_factory=dict)
    """Patterns of its messages, each with the diagnosis, or a function of the match that may have
    none.
    """
    harmful_variables: Callable[[Mapping[str, str]], Mapping[str, Diagnosis]] = lambda _: {}
    """The environment variables with which importing it would block, or fail later."""
    gpus: Callable[[], Gpus] = Gpus
    """List the GPUs that it finds; called when it is imported."""
    cuda_build: str = ""
    """The command that replaces its build for CPUs by one for CUDA; empty if there is none."""


def installation_of(framework: str) -> Installation:
    """Return what a framework declares, by the name of its backend.

    The defaults if it declares nothing.
    """
    return offered("installation").get(framework, Installation)()


def is_installed(framework: str) -> bool:
    """Return whether the module that a backend imports can be found; true if none is declared.

    Imports nothing.
    """
    module = installation_of(framework).module
    try:
        return not module or find_spec(module) is not None
    except ModuleNotFoundError:
        # `a.b` without an `a`.
        return False


def diagnose(framework: str, text: str) -> Diagnosis | None:
    """Return the diagnosis of a framework's failure, by the text of its error or warning.

    None if the framework declares no failure with such a text.
    """
    for pattern, diagnosis in installation_of(framework).known_failures.items():
        match = re.search(pattern, text)
        if match is None:
            continue
        if isinstance(diagnosis, Diagnosis):
            return diagnosis
        return diagnosis(match)
    return None


def diagnose_absence(
    framework: str, python: tuple[int, ...] = sys.version_info[:3], root: Path = ROOT
) -> Diagnosis:
    """Return how to install a framework that is not installed.

    `python` is the version of Python, and `root` the checkout.
    """
    installation = installation_of(framework)
    diagnosis = installation.absent(python)
    if diagnosis is not None:
        return diagnosis
    cause = f"{title(framework)} is not installed"
    rival = _rival(installation.numpy)
    if rival is None:
        return Diagnosis(cause, install_command(framework, root=root), "not-installed")
    folder, command = separate_environment(framework, root=root)
    if not _is_made_by_make(framework, root):
        # `compare` finds environments that `make` made, and no others.
        cause += (
            f"; it needs NumPy {installation.numpy}, and so a separate environment beside "
            f"{title(rival)}, which `compare` takes by --python {framework}={folder}/bin/python"
        )
    return Diagnosis(cause, command, "not-installed")


def _rival(wanted_numpy: str) -> str | None:
    """Return an installed framework that needs the installed NumPy, if another one is wanted.

    None if the installed NumPy is among the wanted versions, or if no framework needs it.
    """
    installed_numpy = installed_version("numpy")
    if installed_numpy is None or not wanted_numpy or takes(wanted_numpy, installed_numpy):
        return None
    for name, load in offered("installation").items():
        installation: Installation = load()
        if not installation.numpy:
            continue
        if takes(installation.numpy, installed_numpy) and is_installed(name):
            return name
    return None


def takes(versions: str, installed: str) -> bool:
    """Return whether the installed version meets a specifier, `>=2`; early releases count."""
    # Machines that are lent for a GPU lack it, and ask nothing of this.
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(versions).contains(installed, prereleases=True)


def failure_of(framework: str, error: BaseException) -> Diagnosis:
    """Return an error's diagnosis; the error in one line, without a command, if it is not known."""
    if isinstance(error, InstallationError):
        return error.diagnosis
    text = f"{type(error).__name__}: {error}"
    in_one_line = " ".join(text.split())
    return diagnose(framework, text) or Diagnosis(in_one_line)


def install_command(extra: str, options: str = "", root: Path = ROOT) -> str:
    """Return the command that installs an extra of parallel-core.

    A checkout is named by its path, because no index has the package.
    """
    source = f"'parallel-core[{extra}]'"
    is_checkout = (root / SETUP.name).is_file()
    if is_checkout:
        path_with_extra = quote(f"{root}[{extra}]")
        source = f"-e {path_with_extra}"
    if options:
        return f"pip install {options} {source}"
    return f"pip install {source}"


def separate_environment(
    framework: str, suffix: str = "alone", python: str = "python3", root: Path = ROOT
) -> tuple[str, str]:
    """Return the folder of a separate environment for a framework, and the command that makes it.

    If the checkout's Makefile makes one, it is that one; else `suffix` ends the folder's name.
    """
    if _is_made_by_make(framework, root):
        folder = f".venv-{framework}"
        return f"{root}/{folder}", f"make -C {quote(str(root))} {folder}/ready"
    folder = f"{framework}-{suffix}"
    install = f"{folder}/bin/{install_command(framework, root=root)}"
    return folder, f"{python} -m venv {folder} && {install}"


def _is_made_by_make(framework: str, root: Path) -> bool:
    """Return whether a checkout's Makefile makes an environment for a framework."""
    makefile = root / "Makefile"
    if not (root / SETUP.name).is_file() or not makefile.is_file():
        return False
    return f":= .venv-{framework}\n" in makefile.read_text()


def import_framework(
    name: str,
    settings: FrameworkSettings,
    *,
    requirement: str,
    prepare: Callable[[], None] = lambda: None,
    read_once: Collection[str] = (),
) -> ModuleType:
    """Import a framework under environment variables, and return its module.

    `settings` are the variables that the framework reads at import. `requirement` names what it
    needs, for the error message. `prepare` is called just before the import, under these settings;
    afterwards variables that are `read_once` have their old values again. Raises BackendError if
    the framework is absent, broken, or already imported with other settings; InstallationError if
    the remedy is known.
    """
    if sys.modules.get(name) is not None:
        _check_imported_with(name, settings)
        return sys.modules[name]
    values_before = {variable: os.environ.get(variable) for variable in settings}
    _apply(settings)
    try:
        _check_installation(name)
        prepare()
        # A framework's own deprecated imports do not concern its users.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            module = importlib.import_module(name)
    except InstallationError:
        _apply(values_before)
        raise
    except Exception as error:
        _apply(values_before)
        reason = f"{type(error).__name__}: {error}"
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == name
        diagnosis = diagnose_absence(name) if is_absent else diagnose(name, reason)
        if diagnosis is not None:
            raise InstallationError(diagnosis) from error
        raise BackendError(
            f"{name} cannot be imported ({reason}): it needs {requirement}"
        ) from error
    _apply({variable: values_before[variable] for variable in read_once})
    _imported_with[name] = dict(settings)
    return module


def _check_imported_with(name: str, settings: FrameworkSettings) -> None:
    """Raise BackendError if an imported framework has read other values than these settings."""
    values_read = _imported_with.get(name, os.environ)
    for variable, needed in settings.items():
        value_read = values_read.get(variable)
        if value_read != needed:
            raise BackendError(
                f"{name} is already imported with {variable}={value_read or 'unset'}, and this "
                f"backend needs {needed or 'unset'}: start a fresh process, and load the backend "
                f"before importing {name}"
            )


def _check_installation(name: str) -> None:
    """Raise InstallationError if a framework declares that it cannot be imported here and now."""
    installation = installation_of(name)
    for diagnosis in installation.harmful_variables(os.environ).values():
        raise InstallationError(diagnosis)
    diagnosis_of_versions = installation.installed()
    if diagnosis_of_versions is not None:
        raise InstallationError(diagnosis_of_versions)


@contextmanager
def environment(settings: FrameworkSettings) -> Iterator[None]:
    """Set environment variables within a `with` block."""
    values_before = {variable: os.environ.get(variable) for variable in settings}
    _apply(settings)
    try:
        yield
    finally:
        _apply(values_before)


def _apply(settings: FrameworkSettings) -> None:
    """Set environment variables of this process; unset those whose value is None."""
    for variable, value in settings.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
