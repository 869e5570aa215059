"""Graph: what does the graph of a training step look like, and how fast could it be?

Book: Dive into Deep Learning, "Automatic Parallelism", the figure of a two-layer MLP on a CPU and two GPUs; and
"Asynchronous Computation", the figure of z = x · y + 2.

Prediction: The devices' forward and backward passes do not depend on each other, so they may run at the same time, and
the second layer's gradients can be summed while the first layer goes back. The step takes its longest chain: one
device's passes, then the sum, the update and the broadcast of the first layer.

Method: A step is launched operation by operation: the first device keeps the parameters, adds up the gradients and
updates, the others compute. What is launched is recorded, with the values that pass from one operation to the next: the
picture (`--plot FILE`) is drawn from this recording, and no dependency in it was written down by hand. The step is
timed with a wait after every operation, which gives each operation's seconds alone, and then with none.

Look at: `parallelism`, which is all work over the longest chain, and `bound_fraction`, the least time that any schedule
needs over the time that the step took. In the picture, the longest chain in colour.

Read: A parallelism of 2 means that no number of devices makes the step more than twice as fast. A fraction of 1 is as
fast as any schedule could be, with as many devices at once as there are cores for. The backward pass through a layer
computes the layer again, since that is what the backends' gradients are of: real ones take less.

With `--of xy` it is the asynchronous chapter's example: two operations in a chain, which nothing can run in parallel.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
from humanize import naturalsize

import backends
from backends import Backend
from parallel_core.errors import RequestError
from parallel_core.experiments.automatic_parallelism.graph.programs import expected_step, mlp, xy
from parallel_core.experiments.automatic_parallelism.scheduling import (
    Program,
    about_schedule,
    record,
    time_programs,
    what_would_change,
)
from parallel_core.experiments.measuring import largest_error, result_of
from parallel_core.experiments.runner.declaration import BUDGET, Budget, Experiment, Parameter, Rounds
from parallel_core.measurement.answer import Answer
from parallel_core.measurement.checks import relative_error
from parallel_core.measurement.result import Result
from parallel_core.measurement.task_graph import Task, crossings, work_seconds
from parallel_core.measurement.timing import countdown

__all__ = ["EXPERIMENT", "Of", "about_crossings", "about_parallelism", "run"]

Of = Literal["mlp", "xy"]
MIN_DEVICES = 3
XY_SIZE = 1000
TITLES: Mapping[Of, str] = MappingProxyType({"mlp": "A training step of a two-layer MLP", "xy": "z = x · y + 2"})
"""What a picture is of."""


def run(
    backend: Backend,
    of: Annotated[Of, Parameter("A two-layer MLP's training step, or z = x · y + 2.")] = "mlp",
    batch: Annotated[int, Parameter("Images in the MLP's step.")] = 1024,
    rounds: Rounds = 5,
    budget: Budget = BUDGET,
) -> Result:
    """Record a program's operations, time them one by one and freely scheduled, and return them with the times.

    `batch` is the number of images in the MLP's step. Raises RequestError for fewer than three devices, which the MLP
    needs.
    """
    if of == "mlp" and len(backend.devices) < MIN_DEVICES:
        raise RequestError("the graph of the MLP is of one device that keeps and two that compute (--devices 3)")
    left = countdown(budget)
    program = xy(XY_SIZE) if of == "xy" else mlp(batch)
    (scheduled,) = time_programs(backend, {"": program}, rounds, left(0.9)).values()
    tasks, bounds = scheduled.tasks, scheduled.bounds
    parallelism = work_seconds(tasks) / bounds.critical_path
    return result_of(
        "graph",
        backend,
        parameters={"of": TITLES[of], "batch": batch, "rounds": rounds, "budget": budget},
        cases=(scheduled.alone, scheduled.free),
        metrics={
            "bound_fraction": scheduled.bound_fraction,
            "parallelism": parallelism,
            "operations": len(tasks),
            "crossings": crossings(tasks),
            "moved_bytes": sum(task.bytes for task in tasks),
            "critical_path_seconds": bounds.critical_path,
            "work_seconds": work_seconds(tasks),
            "work_per_device_seconds": bounds.work_per_device,
        },
        intervals={"bound_fraction": scheduled.bound_interval},
        explanation=about_schedule("Freely scheduled, the program", scheduled),
        answer=Answer(
            (about_parallelism(parallelism, len(tasks)), about_crossings(tasks)),
            what_would_change(backend, scheduled, f"--batch {4 * batch}" if of == "mlp" else "--of mlp"),
        ),
        error=_error_of(backend, of, program, batch),
        compared="results",
        # The picture of z = x · y + 2 shows the inputs, as the book's does.
        tasks=record(backend, program, one_by_one=True) if of == "xy" else tasks,
    )


def _error_of(backend: Backend, of: Of, program: Program, batch: int) -> float:
    """Run the program once more and return the largest relative difference of its result from NumPy's."""
    results = backend.to_numpy(program.run(backend, program.inputs(backend)))
    if of == "xy":
        return relative_error(results, np.full((XY_SIZE, XY_SIZE), 3.0))
    # Each array of each layer, on every device.
    arrays = [array for layers in results for layer in layers for array in layer]
    layers = expected_step(backends.load("numpy", devices=1, threads_per_device=1), batch)
    return largest_error(arrays, [array for layer in layers for array in layer] * len(results))


def about_parallelism(parallelism: float, operations: int) -> str:
    """Say how many devices the graph can keep busy."""
    if parallelism < 1.05:
        return f"The program's {operations} operations are a chain: no number of devices makes them faster."
    return (
        f"All {operations} operations take {parallelism:.2f} × as long as the longest chain of them: "
        f"with any number of devices the program is at most {parallelism:.2f} × as fast as with one."
    )


def about_crossings(tasks: Sequence[Task]) -> str:
    """Say how often one device waits for another, and how much passes between them."""
    moved = naturalsize(sum(task.bytes for task in tasks))
    return f"At {crossings(tasks)} places an operation waits for one on another device, and {moved} are copied."


EXPERIMENT = Experiment(
    name="graph",
    position=7,
    remark="the figure of a two-layer MLP",
    run=run,
    case="freely scheduled",
    metric="bound_fraction",
    metric_means="the least time that any schedule needs over the time taken: 1 is as fast as any could be",
    metric_limits=(0.0, 1.0),
    devices=3,
    options={"full": {"rounds": 10}, "quick": {"rounds": 5}},
)
