"""Graph: what does the graph of a training step look like, and how fast could it be?

Book: Dive into Deep Learning, "Automatic Parallelism", the figure of a two-layer MLP on a CPU and two GPUs; and
"Asynchronous Computation", the figure of z = x · y + 2.

Prediction: The devices' forward and backward passes do not depend on each other, so they may run at the same time, and
the second layer's gradients can be summed while the first layer goes back. The step takes its longest chain: one
device's passes, then the sum, the update and the broadcast of the first layer.

Method: A step is launched operation by operation: the first device keeps the parameters, adds up the gradients and
updates, the others compute. What is launched is recorded, with the values that pass from one operation to the next: the
picture (`--plot FILE`) is drawn from this recording, and no dependency in it was written down by hand. The step is
timed with a wait after every operation, which gives each operation's separate seconds, and then with none.

Look at: `parallelism`, which is all work over the longest chain, and `bound_fraction`, the least time that any schedule
needs over the time that the step took. In the picture, the longest chain in colour.

Read: A parallelism of 2 means that no number of devices makes the step more than twice as fast. A fraction of 1 is as
fast as any schedule could be, with as many devices at once as there are cores for. The backward pass through a layer
computes the layer again, since that is what the backends' gradients are of: real ones take less.

With `--of xy` it is the asynchronous chapter's example: two operations in a chain, which nothing can run in parallel.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np

import backends
from parallel_core.errors import RequestError
from parallel_core.experiments.automatic_parallelism.book_graphs import expected_step, mlp, xy
from parallel_core.experiments.automatic_parallelism.scheduling import (
    BOUND_FRACTION,
    CHANGES,
    FREE,
    SPEEDUP,
    find_bounds,
    record,
    time_programs,
)
from parallel_core.experiments.runner.changes import Change, larger
from parallel_core.experiments.runner.declaration import Experiment, Parameter
from parallel_core.experiments.runner.trial import Trial
from parallel_core.measurement.task_graph import crossings, work_seconds

__all__ = ["EXPERIMENT", "program"]

Of = Literal["mlp", "xy"]
MIN_DEVICES = 3
XY_SIZE = 1000
TITLES: Mapping[Of, str] = MappingProxyType({"mlp": "A training step of a two-layer MLP", "xy": "z = x · y + 2"})
"""What a picture is of."""


def program(
    trial: Trial,
    of: Annotated[Of, Parameter("A two-layer MLP's training step, or z = x · y + 2.")] = "mlp",
    batch: Annotated[int, Parameter("Images in the MLP's step.")] = 1024,
) -> None:
    """Record a program's operations, and time them one by one and freely scheduled.

    Raises RequestError for fewer than three devices, which the MLP needs.
    """
    if of == "mlp" and len(trial.devices) < MIN_DEVICES:
        raise RequestError("the graph of the MLP is of one device that keeps and two that compute (--devices 3)")
    trial.parameters["of"] = TITLES[of]
    drawn = xy(XY_SIZE) if of == "xy" else mlp(batch)
    scheduled = time_programs(trial, {"": drawn})[""]
    tasks = scheduled.tasks
    # The picture of z = x · y + 2 shows the inputs, as the book's does.
    trial.described["tasks"] = record(trial.backend, drawn, one_by_one=True) if of == "xy" else tasks
    find_bounds(trial, "", scheduled)
    trial.found("parallelism", work_seconds(tasks) / scheduled.bounds.critical_path)
    trial.found("operations", len(tasks))
    trial.found("crossings", crossings(tasks))
    trial.found("moved_bytes", sum(task.bytes for task in tasks))
    trial.found("work_seconds", work_seconds(tasks))
    made = trial.backend.to_numpy(drawn.run(trial.backend, drawn.inputs(trial.backend)))
    if of == "xy":
        trial.check("results", [made], [np.full((XY_SIZE, XY_SIZE), 3.0)])
        return
    # Each array of each layer, on every device.
    expected = [
        array for layer in expected_step(backends.load("numpy", 1, threads_per_device=1), batch) for array in layer
    ]
    for layers in made:
        trial.check("results", [array for layer in layers for array in layer], expected)


EXPERIMENT = Experiment(
    name="graph",
    position=7,
    remark="the figure of a two-layer MLP",
    program=program,
    case=FREE,
    metrics=(BOUND_FRACTION, SPEEDUP),
    changes=(
        *CHANGES,
        Change(lambda found: found.result.parameters["of"] == TITLES["xy"], "A step of several devices (--of mlp)."),
        larger("batch", "Larger batches", "handing operations over matters less"),
    ),
    devices=3,
    options={"full": {"rounds": 10}, "quick": {"rounds": 5}},
)
