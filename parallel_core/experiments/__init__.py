"""The book's experiments. Each is a module of its chapter's package that declares itself as
`EXPERIMENT`.

An experiment runs on any backend, returns a frozen result, and names no framework.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pkgutil import iter_modules
from typing import final

from parallel_core.experiments.runner.declaration import CHAPTERS, Experiment, Mode

__all__ = ["EXPERIMENTS", "Experiment", "Mode"]


@final
class _Catalogue(Mapping[str, Experiment]):
    """All experiments by name, in the book's order.

    To look one up imports its module only.
    """

    def __getitem__(self, name: str) -> Experiment:
        # `async` is a keyword of Python, and no name of a module.
        module = "asynchrony" if name == "async" else name.replace("-", "_")
        for chapter in CHAPTERS:
            if module.isidentifier() and find_spec(f"{__name__}.{chapter}.{module}"):
                experiment = _declared_in(chapter, module)
                if experiment is not None and experiment.name == name:
                    return experiment
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        for chapter in CHAPTERS:
            experiments = []
            for module in iter_modules(import_module(f"{__name__}.{chapter}").__path__):
                experiment = _declared_in(chapter, module.name)
                if experiment is not None:
                    experiments.append(experiment)
            experiments.sort(key=attrgetter("position"))
            for experiment in experiments:
                yield experiment.name

    def __len__(self) -> int:
        # `list` would ask for this length first.
        return sum(1 for _name in self)


def _declared_in(chapter: str, module: str) -> Experiment | None:
    """Return the experiment that a module of a chapter declares; None if it declares none."""
    imported = import_module(f"{__name__}.{chapter}.{module}")
    return getattr(imported, "EXPERIMENT", None)


EXPERIMENTS: Mapping[str, Experiment] = _Catalogue()
