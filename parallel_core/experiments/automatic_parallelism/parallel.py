"""Automatic parallelism: do two devices work at the same time when nobody tells them to?

Book: Dive into Deep Learning, "Automatic Parallelism".

Prediction: The matrix multiplications on one device do not depend on those on another, so an engine
with a queue for each device runs them at the same time, and all together take as long as one device
in isolation.

Method: The same 25 matrix multiplications run on one device after the other, with a wait in
between, and then on all devices without one; nothing else says that they may overlap. Each device
has separate cores and threads.

Look at: `parallel_speedup`, the sum of the devices' separate times over their time together;
`price_of_overlap`, how much longer the first device takes while the others work.

Read: At 1 the devices take turns; the number of devices is the most that can be reached. Less than
that, on an asynchronous engine, means that the devices share something: cores, memory, or a
resource of which the framework has only one.
"""

from typing import Annotated

from parallel_core.experiments import works
from parallel_core.experiments.runner.changes import (
    LESS_NOISE,
    MORE_CORES,
    larger,
    with_queue,
    without_queue,
)
from parallel_core.experiments.runner.counts import IN_PART, MOSTLY, Count
from parallel_core.experiments.runner.declaration import OF_PRODUCTS, Experiment
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, gained_on_devices
from parallel_core.experiments.runner.parameters import Chosen
from parallel_core.experiments.runner.tallies import begun_beside_another_device
from parallel_core.experiments.runner.trial import Trial

TOGETHER = "on all together"
SIZE = Chosen(
    "Side of the matrices. Default: chosen for runs of about 0.2 s.",
    # Each device is timed alone, as one unit, and in turn with the others if nothing overlaps.
    how=lambda trial: works.size_for_run(trial, 3 * len(trial.devices)),
)


def program(trial: Trial, size: Annotated[int, SIZE]) -> None:
    """Time 25 multiplications on each device, and on all together.

    Raises RequestError for a single device.
    """
    trial.refuse_single_device("parallel", "compares devices")
    trial.parameters["products"] = works.MULTIPLICATIONS
    matrices = {device: trial.normal(size, device) for device in trial.devices}
    alone = {
        f"on {device} alone": works.multiplications(trial, x, device=device)
        for device, x in matrices.items()
    }
    for name, work in alone.items():
        trial.time(name, work)
    trial.time(TOGETHER, *alone.values(), parts=alone)
    works.time_beside(trial, *alone.values())
    if larger_size := works.larger_size_to_count(trial, TOGETHER, size):
        larger_matrices = [trial.normal(larger_size, device) for device in trial.devices]
        trial.count_as(
            TOGETHER,
            lambda: [works.multiplied(trial, x, works.MULTIPLICATIONS) for x in larger_matrices],
        )
    a = trial.backend.to_numpy(matrices[trial.devices[0]])
    trial.check("products", [work.launch()[-1] for work in alone.values()], [a @ a] * len(alone))


SPEEDUP = Metric(
    "parallel_speedup",
    lambda times: sum(times.parts(TOGETHER)) / times[TOGETHER],
    title="Devices at once",
    means="speed-up of all devices together over one after the other: 1 is taking turns",
    share=gained_on_devices,
    at_most=lambda result: len(result.backend["devices"]),
    bands=(
        Band(LOWEST, "hindered", "The devices slowed each other down"),
        Band(-0.2, "serial", "The devices took turns"),
        Band(0.2, "partly", "The devices overlapped in part"),
        Band(0.8, "parallel", "The devices worked at the same time"),
    ),
)

BESIDE = Count(
    "begun_beside_another_device",
    "multiplications of a device began while another one was in the middle of one",
    case=TOGETHER,
    tally=begun_beside_another_device,
    metric=SPEEDUP.name,
    title="Begun beside another",
    bands=(
        Band(LOWEST, "serial", "No, the devices took turns"),
        Band(IN_PART, "partly", "The devices worked at the same time in part"),
        Band(MOSTLY, "parallel", "Yes, the devices worked at the same time"),
    ),
)

EXPERIMENT = Experiment(
    name="parallel",
    summary="Do two devices work at the same time?",
    position=1,
    program=program,
    case=TOGETHER,
    metrics=(SPEEDUP, works.price_of_overlap(TOGETHER)),
    counts=(BESIDE,),
    changes=(
        with_queue("the devices should work at the same time"),
        without_queue(
            SPEEDUP.name, ("parallel",), "the devices should take turns, with a speed-up of 1"
        ),
        LESS_NOISE,
        MORE_CORES,
        larger("size", "Larger matrices", "launching, or a lock, may be what the devices share"),
    ),
    settings=OF_PRODUCTS,
    key_timeline=2,
    options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 504}},
)
