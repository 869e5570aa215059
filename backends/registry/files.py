"""Backends in files: `--backend PATH.py:Class` registers a class, for this process and those that
it starts.
"""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from backends.errors import BackendError

FILES = "PARALLEL_CORE_BACKEND_FILES"
"""The environment variable that holds `Class=PATH.py` for each, separated as in PATH."""


def in_files() -> dict[str, str]:
    """Return the files of the classes that the environment variable registers, by class name.

    Raises BackendError if the variable holds anything else.
    """
    file_of_class: dict[str, str] = {}
    for entry in os.environ.get(FILES, "").split(os.pathsep):
        if not entry:
            continue
        class_name, equals_sign, file = entry.partition("=")
        if not equals_sign:
            raise BackendError(f"{FILES} holds {entry!r}, which is not Class=PATH.py")
        file_of_class[class_name] = file
    return file_of_class


def named(text: str) -> str:
    """Return the name of a backend; `PATH.py:Class` is registered before, by its class's name.

    Raises BackendError if there is no such file.
    """
    path, colon, name = text.rpartition(".py:")
    if not colon:
        return text
    file = Path(f"{path}.py").resolve()
    if not (file.is_file() and name.isidentifier()):
        raise BackendError(f"{text!r} is not PATH.py:Class, a class in a file that exists")
    if os.pathsep in str(file):
        raise BackendError(
            f"{file} has {os.pathsep!r} in its path, which separates files in {FILES}: move it"
        )
    file_of_class = in_files()
    file_of_class[name] = str(file)
    entries = [f"{class_name}={path}" for class_name, path in file_of_class.items()]
    os.environ[FILES] = os.pathsep.join(entries)
    return name


def spelled(name: str) -> str:
    """Return what stands for a backend on a command line: its name, or `PATH.py:Class`."""
    if name not in in_files():
        return name
    return f"{os.path.relpath(in_files()[name])}:{name}"


def __getattr__(name: str) -> Any:
    """Return a registered class, which is an attribute of this module; its file is run once."""
    if name not in in_files():
        raise AttributeError(name)
    path = in_files()[name]
    module_name = f"backend in {path}"
    if module_name not in sys.modules:
        _run_file(path, module_name)
    module = sys.modules[module_name]
    if not hasattr(module, name):
        raise BackendError(f"{path} has no class {name}")
    return getattr(module, name)


def _run_file(path: str, module_name: str) -> None:
    """Import a file as a module of this name.

    The file may import modules that lie beside it, as it may when `python PATH.py` runs it.
    """
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise BackendError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
