"""Building blocks: what do the chapter's small functions do to a few numbers, and what goes wrong in them?

Book: Dive into Deep Learning, "Training on Multiple GPUs", small examples; the traps are those of the
PyTorch edition, which rebinds list items in `allreduce`, and whose copies to another device are none if
both are one CPU.

Prediction: 1s and 2s become 3s on every device; 4 rows are divided into 2 and 2, 5 into 3 and 2, and if 1 row is
divided over 3 devices, two get nothing. A function that puts its results into the items of a list leaves the arrays
that were in it as they are; an array that two devices hold takes both of their updates.

Method: Each example is run with the verbs of the backend, and its values are compared with those that must come out.
The two traps are set in NumPy, and the verb that avoids them is shown beside them. Then the verbs are timed on these
values.

Look at: the answer and the notes, a sentence for each example, with its values; `allreduce_seconds` and the other
times.

Read: A value that is not the expected one makes the result invalid. With so few numbers the times are those of a call;
only `get_params` and `copy_to` handle the whole network.
"""

from collections.abc import Sequence
from functools import partial

from humanize import metric

from backends import Backend
from parallel_core.experiments.measuring import refuse_single_device, result_of
from parallel_core.experiments.runner.declaration import BUDGET, Budget, Experiment, Rounds
from parallel_core.experiments.training_on_multiple_gpus.building_blocks.demonstrations import (
    DEMONSTRATIONS,
    SUM,
    TRAPS,
    matrix,
    ones_and_twos,
)
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import largest_of
from parallel_core.measurement.result import Case, Result
from parallel_core.measurement.timing import Timing, interleave, measure
from parallel_core.measurement.verdicts import over_rounds
from parallel_core.system.formatting import listed
from parallel_core.training.step import get_params

__all__ = ["EXPERIMENT", "run", "verdict"]


def run(backend: Backend, rounds: Rounds = 5, budget: Budget = BUDGET) -> Result:
    """Run the chapter's examples, and time each verb in them `rounds` times, or fewer within the budget of seconds.

    Raises RequestError for a backend with a single device.
    """
    refuse_single_device(backend, "building-blocks", "shows two devices")
    shown = {name: demonstrate(backend) for name, demonstrate in DEMONSTRATIONS.items()}
    wrong = [name for name, demonstration in shown.items() if not demonstration.error < 1e-4]
    cases = _time_verbs(backend, rounds, budget)
    return result_of(
        "building-blocks",
        backend,
        parameters={"rounds": rounds, "budget": budget},
        cases=cases,
        metrics={f"{case.name}_seconds": case.median for case in cases},
        intervals={f"{case.name}_seconds": over_rounds(lambda seconds: seconds, case.seconds) for case in cases},
        explanation=verdict(wrong, len(shown), shown[SUM].sentence),
        answer=Answer(
            tuple(shown[name].sentence for name in TRAPS),
            "Nothing would: the values are the same on every backend, engine (--engine sync) and number of --devices; "
            "only the times differ.",
        ),
        notes=(
            *(one.sentence for name, one in shown.items() if name not in (SUM, *TRAPS)),
            f"Until all was done, the verbs took: {listed([f'{one.name} {_seconds(one)}' for one in cases])}.",
        ),
        error=largest_of([demonstration.error for demonstration in shown.values()]),
        compared=f"the values of {listed([repr(name) for name in wrong or shown])}",
        judges_times=False,
    )


def _time_verbs(backend: Backend, rounds: int, budget: float) -> tuple[Case, ...]:
    first, second = backend.devices[:2]
    # Two numbers a device give their kernels nothing to do, so there are no bare times.
    params = get_params(backend, first)
    return interleave(
        {
            "get_params": partial(measure, backend, partial(get_params, backend, first)),
            "copy_to": partial(measure, backend, lambda: backend.copy_to(params, second)),
            "split_and_load": partial(measure, backend, partial(backend.split_and_load, matrix(), (first, second))),
            "allreduce": partial(_time_allreduce, backend),
        },
        rounds,
        budget=budget,
    )


def _time_allreduce(backend: Backend) -> Timing:
    """Time the sum of 1s and 2s, which are consumed and so loaded anew each time."""
    values = ones_and_twos(backend)
    return measure(backend, lambda: backend.allreduce(values))


def verdict(wrong: Sequence[str], count: int, summed: str) -> str:
    """Say which of `count` examples failed, or, if none did, what allreduce did to a few numbers."""
    if not wrong:
        return f"All {count} examples gave the values that must come out. {summed}"
    return f"{len(wrong)} of {count} examples gave wrong values: {listed([f'{name!r}' for name in wrong])}."


def _seconds(case: Case) -> str:
    return metric(case.median, "s")


EXPERIMENT = Experiment(
    name="building-blocks",
    position=3,
    remark="small examples",
    run=run,
    case="allreduce",
    metric="allreduce_seconds",
    metric_means="the seconds that summing one small vector of each device takes",
    queued_case="get_params",
    options={"full": {"rounds": 50}, "quick": {"rounds": 20}},
)
