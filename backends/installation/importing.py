"""Import a framework under the environment variables that it reads once, when it is imported.

They are set before; if it is already imported with other settings, it is refused.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Collection
from types import ModuleType

from backends.errors import BackendError
from backends.installation.frameworks import InstallationError, diagnose, diagnose_absence, installation_of
from backends.protocol import FrameworkSettings

_imported_with: dict[str, FrameworkSettings] = {}


def import_framework(
    name: str,
    settings: FrameworkSettings,
    *,
    requirement: str,
    prepare: Callable[[], None] = lambda: None,
    read_once: Collection[str] = (),
) -> ModuleType:
    """Import a framework under the environment it needs.

    `settings` are the variables that it reads at import. `requirement` names what it needs, for the error message.
    `prepare` is called just before, under these settings; those that are `read_once` are as before afterwards. Raises
    BackendError if the framework is absent, broken, or already imported with other settings; InstallationError if it is
    known what to do.
    """
    if sys.modules.get(name) is not None:
        current = _imported_with.get(name, os.environ)
        for variable, wanted in settings.items():
            if current.get(variable) != wanted:
                raise BackendError(
                    f"{name} is already imported with {variable}={current.get(variable) or 'unset'}, and this backend "
                    f"needs {wanted or 'unset'}: start a fresh process, and load the backend before importing {name}"
                )
        return sys.modules[name]
    before = {variable: os.environ.get(variable) for variable in settings}
    _apply(settings)
    try:
        declared = installation_of(name)
        for wrong in filter(None, (*declared.harmful_variables(os.environ).values(), declared.installed())):
            raise InstallationError(wrong)
        prepare()
        # A framework's own deprecated imports do not concern its users.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            module = importlib.import_module(name)
    except Exception as error:
        _apply(before)
        if isinstance(error, InstallationError):
            raise
        reason = f"{type(error).__name__}: {error}"
        absent = isinstance(error, ModuleNotFoundError) and error.name == name
        if diagnosis := diagnose_absence(name) if absent else diagnose(name, reason):
            raise InstallationError(diagnosis) from error
        raise BackendError(f"{name} cannot be imported ({reason}): it needs {requirement}") from error
    _apply({variable: before[variable] for variable in read_once})
    _imported_with[name] = dict(settings)
    return module


def _apply(settings: FrameworkSettings) -> None:
    for variable, value in settings.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
