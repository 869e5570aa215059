"""`measure` a request: load its backend, run its experiment, and return the result."""

from contextlib import nullcontext

import backends
from backends import Backend
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner.counting import REPETITIONS
from parallel_core.measurement.request import Request, Work
from parallel_core.measurement.result import Result
from parallel_core.measurement.starter import ALONE, Turns
from parallel_core.measurement.timing import repeatable
from parallel_core.run.arguments import Supplies, arguments_of

USUAL = Supplies()


def load(work: Work) -> Backend:
    """Load the backend of a work, with the devices and settings that it says."""
    return backends.load(
        work.backend,
        work.devices or EXPERIMENTS[work.experiment].devices,
        work.device_kind,
        work.engine,
        work.threads,
        work.workers,
        work.variant,
    )


def measure(
    request: Request, backend: Backend, supplies: Supplies = USUAL, turns: Turns = ALONE
) -> Result:
    """Measure what is asked for on a backend, whose process takes turns.

    The cases can be repeated if the request wants a recording. Raises RequestError for a value that
    a parameter does not take, and whatever the experiment raises.
    """
    work = request.work
    experiment = EXPERIMENTS[work.experiment]
    count = REPETITIONS if work.count is None else work.count
    keeping = repeatable() if request.files.is_recorded else nullcontext()
    with keeping, arguments_of(request, experiment, backend, supplies) as arguments:
        return experiment.run(
            backend, count=count, sizes_chosen=work.sizes_chosen, turns=turns, **arguments
        )
