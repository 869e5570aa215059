"""A laboratory for how deep-learning frameworks schedule work.

>>> import backends, parallel_core
>>> backend = backends.load("torch", devices=2)
>>> result = parallel_core.run_parallel(backend)
>>> result.metrics["parallel_speedup"], result.explanation

Each experiment of the catalogue (`parallel-core list`) is a function here: `run_` and its name.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # This stub is written from the catalogue. It does not exist at run time.
    from parallel_core.experiments.functions import *  # noqa: F403

HOMES = {
    "Benchmark": "measurement.timing",
    "Case": "measurement.result",
    "Dataset": "training.dataset",
    "DisturbedError": "system.errors",
    "MeasurementError": "system.errors",
    "RequestError": "system.errors",
    "Result": "measurement.result",
    "Settings": "training.batches",
    "explain": "experiments.explanation",
    "load_fashion_mnist": "training.dataset",
    "predict": "run.prediction",
    "profiled_step": "traces.profile",
    "trace": "traces.profile.requirements",
}
"""The module of each public name.

Editors read these names, and the functions of experiments, in `experiments/functions.pyi`.
"""
__all__ = [*HOMES]


def _public(name: str) -> Any:
    """Return a public object by its name; its module is imported now.

    Measuring needs only NumPy and psutil: a machine with a GPU may lack what shows results.
    """
    if name in HOMES:
        return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    if name.startswith("run_"):
        experiments = import_module(f"{__name__}.experiments").EXPERIMENTS
        experiment = experiments.get(name.removeprefix("run_").replace("_", "-"))
        if experiment is not None:
            return experiment.run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not TYPE_CHECKING:
    # Type checkers must not see this: they would accept any name.
    __getattr__ = _public


def __dir__() -> list[str]:
    """Return the names of this module, with the public ones that are not imported yet."""
    experiments = import_module(f"{__name__}.experiments").EXPERIMENTS
    functions = [f"run_{name.replace('-', '_')}" for name in experiments]
    return sorted([*globals(), *__all__, *functions])


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    import_module(f"{__name__}.report.notebook").register_in_notebooks(_shell)
