"""Automatic parallelism: do two devices work at the same time when nobody tells them to?

Book: Dive into Deep Learning, "Automatic Parallelism".

Prediction: The matrix multiplications on one device do not depend on those on another, so an engine
with a queue for each device runs them at the same time, and all together take as long as one device
in isolation.

Method: The same 25 matrix multiplications run on one device after the other, with a wait in
between, and then on all devices without one; nothing else says that they may overlap. Each device
has separate cores and threads.

Look at: how many multiplications of a device were in progress beside another device's for half of
their time or more, in a repetition that the framework's profiler recorded, and whether threads ran
meanwhile; `parallel_speedup`, the sum of the devices' separate times over their time together;
`price_of_overlap`, how much longer the first device takes while the others work.

On two streams of one GPU: `filling_size`, from which on a single multiplication fills it.

Read: Operations that are in progress together may still wait for each other, or for a core, so work
at the same time is said only if threads ran, or had no core, for 80 % of it. At a speed-up of 1 the
devices take turns; the number of devices is the most that can be reached. Less than that, on an
asynchronous engine, means that the devices share something: cores, memory, or a resource of which
the framework has only one. Two streams of a GPU share all of it: they gain only while a
multiplication leaves a part idle.
"""

from collections.abc import Sequence
from math import inf
from typing import Annotated

from backends import Array
from parallel_core.experiments import workloads
from parallel_core.experiments.runner.changes import (
    LESS_NOISE,
    MORE_CORES,
    Answered,
    Change,
    larger,
    with_queue,
    without_queue,
)
from parallel_core.experiments.runner.counts import Count, bands_at_once
from parallel_core.experiments.runner.declaration import OF_PRODUCTS, Experiment
from parallel_core.experiments.runner.metrics import (
    Metric,
    bands_of_gain,
    gained_on_devices,
)
from parallel_core.experiments.runner.parameters import Chosen
from parallel_core.experiments.runner.tallies import computed_beside_another_device
from parallel_core.experiments.runner.trial import Trial
from parallel_core.system.formatting import figure

TOGETHER = "on all together"
FULL_RATE = 0.8
"""The share of the highest rate from which on a multiplication fills a GPU."""
SIZE = Chosen(
    "Side of the matrices. Default: chosen for runs of about 0.2 s.",
    # Each device is timed alone, as one unit, and in turn with the others if nothing overlaps.
    how=lambda trial: workloads.size_for_run(trial, 3 * len(trial.devices)),
)


def program(trial: Trial, size: Annotated[int, SIZE]) -> None:
    """Time 25 multiplications on each device, and on all together.

    Raises RequestError for a single device.
    """
    trial.refuse_single_device("parallel", "compares devices")
    trial.parameters["products"] = workloads.MULTIPLICATIONS
    matrices = {device: trial.normal(size, device) for device in trial.devices}
    alone = {
        f"on {device} alone": workloads.multiplications(trial, x, device=device)
        for device, x in matrices.items()
    }
    for name, work in alone.items():
        trial.time(name, work)
    trial.time(TOGETHER, *alone.values(), parts=alone)
    workloads.time_beside(trial, next(iter(alone)), *alone.values())
    if larger_size := workloads.larger_size_to_count(trial, TOGETHER, size):
        count_larger(trial, larger_size)
    if share_a_gpu([str(device) for device in trial.devices]):
        trial.found("filling_size", filling_size(trial))
    a = trial.backend.to_numpy(matrices[trial.devices[0]])
    last_products = [work.launch()[-1] for work in alone.values()]
    trial.check("products", last_products, [a @ a] * len(alone))


def count_larger(trial: Trial, size: int) -> None:
    """Let larger matrices than those that are timed be multiplied for the counts."""
    matrices = [trial.normal(size, device) for device in trial.devices]

    def multiply_on_all_devices() -> list[Array]:
        products: list[Array] = []
        for x in matrices:
            products += workloads.multiplied(trial, x, workloads.MULTIPLICATIONS)
        return products

    trial.count_as(TOGETHER, multiply_on_all_devices)


def share_a_gpu(devices: Sequence[str]) -> bool:
    """Return whether two of the devices are streams of one GPU: `gpu:0/0`, `gpu:0/1`."""
    gpus = [name.partition("/")[0] for name in devices if "/" in name]
    return len(set(gpus)) < len(gpus)


def fills_the_gpu(answered: Answered) -> bool:
    """Return whether each multiplication of a run on streams of one GPU filled that GPU."""
    result = answered.result
    return result.parameters["size"] >= result.metrics.get("filling_size", inf)


def filling_size(trial: Trial) -> int:
    """Return the smallest size at which a multiplication computes at nearly the highest rate."""
    rates = {}
    for size in workloads.geometric(256, 4096):
        rates[size] = size**3 / workloads.seconds_of_one(trial, size)
    full_rate = FULL_RATE * max(rates.values())
    return min(size for size, rate in rates.items() if rate >= full_rate)


SPEEDUP = Metric(
    "parallel_speedup",
    lambda times: sum(times.parts(TOGETHER)) / times[TOGETHER],
    title="Devices at once",
    means="speed-up of all devices together over one after the other: 1 is taking turns",
    share=gained_on_devices,
    at_most=lambda result: len(result.backend["devices"]),
    bands=bands_of_gain(
        hindered="The devices slowed each other down",
        serial="The devices took turns",
        partly="The devices overlapped in part",
        parallel="The devices worked at the same time",
    ),
)

BESIDE = Count(
    "begun_beside_another_device",
    "multiplications of a device were in progress beside those of another one",
    case=TOGETHER,
    tally=computed_beside_another_device,
    at_once=True,
    metric=SPEEDUP.name,
    title="Products at the same time",
    bands=bands_at_once(
        "No, the devices took turns",
        "The devices worked at the same time in part; the other multiplications ran alone",
        "Yes, the devices worked at the same time",
    ),
)

EXPERIMENT = Experiment(
    name="parallel",
    question="Do two devices work at the same time?",
    position=1,
    program=program,
    case=TOGETHER,
    metrics=(SPEEDUP, workloads.price_of_overlap(TOGETHER)),
    counts=(BESIDE,),
    changes=(
        with_queue("the devices should work at the same time"),
        without_queue(
            SPEEDUP.name, ("parallel",), "the devices should take turns, with a speed-up of 1"
        ),
        LESS_NOISE,
        MORE_CORES,
        larger(
            "size",
            "Larger matrices",
            "launching, or a lock, may be what the devices share",
            when=lambda answered: not share_a_gpu(answered.devices),
        ),
        Change(
            fills_the_gpu,
            lambda answered: (
                f"Matrices below {figure(answered.result.metrics['filling_size'])} (--size): from "
                "there on one multiplication fills the GPU, with nothing left for a second stream."
            ),
        ),
    ),
    settings=OF_PRODUCTS,
    key_timeline=2,
    options={"full": {"rounds": 5}, "quick": {"rounds": 5, "size": 320}},
)
