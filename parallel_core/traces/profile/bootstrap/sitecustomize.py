"""Python imports this at its start, in each process of a program under `parallel-core profile`:
nothing else is here.

It imports no framework: when the program imports one itself, the hooks of that framework follow.
All else is as if this were not here: its folder leaves the path, and a `sitecustomize` of the
user's own is imported in its place.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

SETTINGS = "PARALLEL_CORE_PROFILE"
RECORDER = "parallel_core_recorder"


class _Hooking(Loader):
    """Loads a framework as its own loader does, and then hooks it."""

    def __init__(self, loader: Loader, finder: "_FrameworkFinder") -> None:
        self.loader, self.finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.finder.awaited.discard(module.__name__)
        _hook(module, self.finder.settings)


class _FrameworkFinder(MetaPathFinder):
    """Finds the frameworks, until they are imported, as the finders after it would."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.awaited = set(settings["hooks"])

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name not in self.awaited:
            return None
        # Not `remove`: another thread may look it up, too.
        self.awaited.discard(name)
        try:
            spec = find_spec(name)
        finally:
            self.awaited.add(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Hooking(spec.loader, self)
        return spec


def _hook(framework: ModuleType, settings: Mapping[str, Any]) -> None:
    name = framework.__name__
    try:
        recorder = sys.modules.get(RECORDER) or _loaded(RECORDER, settings["recorder"])
        hooks = _loaded(f"parallel_core_hooks_{name}", settings["hooks"][name])
        hooks.hook(framework, recorder.begin(settings))
    except Exception as error:  # The program runs all the same.
        report = {
            "pid": os.getpid(),
            "framework": name,
            "failure": f"{type(error).__name__}: {error}",
        }
        path = Path(settings["folder"]) / f"{os.getpid()}-{name}.report"
        with suppress(OSError):
            path.write_text(json.dumps(report), encoding="utf-8")


def _loaded(name: str, path: str) -> ModuleType:
    # By its path, under a separate name: the program's path may hold another `parallel_core`, or
    # none.
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _continue_with_own() -> None:
    """Import the user's own `sitecustomize`, if there is one, as Python would have."""
    here = str(Path(__file__).parent)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    this = sys.modules.pop("sitecustomize")
    try:
        import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", this)


if __name__ == "sitecustomize":
    if SETTINGS in os.environ:
        sys.meta_path.insert(0, _FrameworkFinder(json.loads(os.environ[SETTINGS])))
    _continue_with_own()
