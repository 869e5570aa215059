"""Three ways at once: can two devices compute while their results travel both ways between them?

Book: Dive into Deep Learning, "Automatic Parallelism", exercise 3 (computation on two devices, and
communication between both), and with `--trace` exercise 4 (what a profiler shows of it).

Prediction: Nothing here depends on anything else here, so all may be done at the same time, and
takes as long as the longest part: of three equal parts, two thirds are saved. But copying between
CPU devices is work for the cores that compute. With two cores for three parts about a third can be
saved at most.

Method: Up to 25 matrix multiplications on the first device, as many on the second, and copies of
earlier results of both into buffers on the other one are timed separately, and then all at once.
Results are copied so often that copying takes about as long as computing. Launches alternate
between the parts, so that no queue gets its work last. On a CPU, the time that the cores worked on
the separate parts, divided by the cores, is the least that all at once can take.

Look at: how many multiplications ran while results travelled in both directions at once, and how
many while at least one was copied, in a repetition that the framework's profiler recorded; then, by
the clock, `saved_fraction`, the share of the parts' added times that doing all at once saves;
`possible_fraction`, what would be saved if all took as long as the longest part;
`possible_on_cores_fraction`, the same if the cores' work takes longer than that.

Read: A count of 0 is one after the other, on a busy machine too. A worker that copies to its device
and computes on it does these in turn: with one for each of two devices all three never go on at
once. Of `saved_fraction` 0 is one after the other, negative is worse. Near the smaller bound only
more devices or cores would help; far below it something waits needlessly. A bound is not exact:
parts that share caches and memory slow each other down, and threads that spin while they wait count
as working.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from time import process_time
from typing import Annotated

import numpy as np

from backends import Array, Device
from backends.profiling import Span
from parallel_core.experiments import copying, workloads
from parallel_core.experiments.runner.changes import (
    LESS_NOISE,
    MORE_CORES_OR_GPUS,
    Answered,
    Change,
    with_queue,
)
from parallel_core.experiments.runner.counts import IN_PART, MOSTLY, Count
from parallel_core.experiments.runner.declaration import OF_COPIES, Exercise, Experiment
from parallel_core.experiments.runner.formulas import Times, Values
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric
from parallel_core.experiments.runner.tallies import Repetition, Tally, copied_beside_computation
from parallel_core.experiments.runner.trial import Trial, Work
from parallel_core.measurement.timing import Timing, measure
from parallel_core.system.machine import usable_cores

BOTH_WAYS, TOGETHER = "copies both ways", "all at once"
LEAST = 0.01
"""The share of the parts' times below which saving is as good as nothing."""


def other_device(trial: Trial) -> Device:
    """Return the second device; raises RequestError if there is none."""
    trial.refuse_single_device("three-way", "copies between devices")
    return trial.devices[1]


# Three parts, all at once in turn if nothing overlaps, and four works as one unit.
SIZE, PRODUCTS, COPIES = copying.chosen_to_copy(other_device, 11)


def program(
    trial: Trial,
    size: Annotated[int, SIZE],
    products: Annotated[int, PRODUCTS],
    copies: Annotated[int, COPIES],
) -> None:
    """Time multiplications on two devices, the copying of results both ways, and all at once."""
    devices = (trial.devices[0], other_device(trial))
    destinations = devices[::-1]
    matrices, computing, sending, results, buffers = [], [], [], [], []
    for seed, (device, destination) in enumerate(zip(devices, destinations, strict=True)):
        matrix = trial.normal(size, device, seed)
        multiplying = workloads.multiplications(trial, matrix, products, device)
        earlier = multiplying.launch()
        received = copying.buffers_in_turn(trial, size, destination)
        copies_of_results = copying.copies_of(trial, earlier, destination, received, copies, device)
        matrices.append(matrix)
        computing.append(multiplying)
        results.append(earlier)
        buffers.append(received)
        sending.append(copies_of_results)
    parts = {
        f"products on {devices[0]}": computing[:1],
        f"products on {devices[1]}": computing[1:],
        BOTH_WAYS: sending,
    }
    # By the seconds that a part took, those that the process worked on its cores meanwhile.
    worked: dict[str, dict[float, float]] = {name: {} for name in parts}

    def take(name: str) -> Timing:
        before = process_time()
        timing = measure(trial.backend, lambda: [work.launch() for work in parts[name]])
        _, done = timing
        worked[name][done] = process_time() - before
        return timing

    for name, part_works in parts.items():
        trial.time(name, *part_works, take=partial(take, name))
    together = Work(lambda: all_at_once(trial, matrices, results, buffers, copies))
    trial.time(TOGETHER, together, parts=parts, bare=(*computing, *sending), hides=BOTH_WAYS)
    if larger_size := workloads.larger_size_to_count(trial, TOGETHER, size):
        count_larger(trial, products, larger_size)
    cases = trial.run()
    copying.note_issuing(trial, BOTH_WAYS)
    core_seconds = 0.0
    # GPUs work without the cores.
    if all(device.kind == "cpu" for device in devices):
        for name in parts:
            # Of the rounds that count.
            core_seconds += median(worked[name][seconds] for seconds in cases[name].seconds)
    share = core_seconds / usable_cores() / sum(cases[name].median for name in parts)
    trial.found_by(ON_CORES.name, partial(possible, on_cores=share), is_ratio=False)
    fresh = [
        copying.buffers_for(trial, size, destination, products) for destination in destinations
    ]
    multiplied = all_at_once(trial, matrices, results, fresh, 1)
    for number, matrix in enumerate(map(trial.backend.to_numpy, matrices)):
        computed = [*multiplied[number::2], *fresh[number]]
        trial.check("products or copies", computed, [matrix @ matrix] * 2 * products)


def count_larger(trial: Trial, products: int, size: int) -> None:
    """Let larger matrices than those that are timed be multiplied and copied for the counts."""
    first, second = trial.devices[0], other_device(trial)
    matrices = [trial.normal(size, device) for device in (first, second)]
    results = [list(workloads.multiplied(trial, x, products)) for x in matrices]
    buffers = [copying.buffers_in_turn(trial, size, there) for there in (second, first)]
    copies = copying.copies_to_hide(trial, second, size).value
    trial.count_as(TOGETHER, lambda: all_at_once(trial, matrices, results, buffers, copies))


def all_at_once(
    trial: Trial,
    matrices: list[Array],
    results: list[list[Array]],
    buffers: list[list[Array]],
    copies: int,
) -> list[Array]:
    """Launch, alternately, a multiplication on each device and the copies of an earlier result.

    Each device's results are copied to the other one. The products are returned.
    """
    products: list[Array] = []
    destinations = trial.devices[1::-1]
    for index in range(len(results[0])):
        for number, destination in enumerate(destinations):
            products += workloads.multiplied(trial, matrices[number])
            earlier = results[number][index]
            copying.copy_in_turn(trial, buffers[number], index, earlier, destination, copies)
    return products


def possible(times: Times, on_cores: float = 0.0) -> Values:
    """Return the share of the parts' times that can be saved at most.

    `on_cores` is the share of them during which the cores work for the parts.
    """
    parts = times.parts(TOGETHER)
    one_after_the_other = sum(parts)
    longest = np.maximum.reduce(parts)
    # What the cores work for the parts drifts as the parts do.
    least = np.maximum(longest, on_cores * one_after_the_other)
    return 1 - least / one_after_the_other


def computed_while_copied_both_ways(repetition: Repetition) -> Tally:
    """Count the computations during which copies in two directions ran at the same time.

    Nothing is counted unless the profiler recorded as many copies as were launched: JAX's records
    some twice, and which way they go is not known.
    """
    computations, copies = repetition.of_kind("compute"), repetition.of_kind("copy")
    launched = [call for call in repetition.launches if call.name.startswith("copy_to")]
    if len(copies) != len(launched):
        return Tally(0, 0)
    moments = moments_of_both_ways(copies)
    beside = 0
    for span in computations:
        if any(start < span.end and span.start < end for start, end in moments):
            beside += 1
    return Tally(beside, len(computations))


def moments_of_both_ways(copies: Sequence[Span]) -> list[tuple[int, int]]:
    """Return when copies in different directions ran at the same time, from start to end.

    A CPU's copies are on the device that they go to; a GPU's are on it in either direction, and
    their names differ.
    """
    moments: list[tuple[int, int]] = []
    running_until: dict[tuple[str, str], int] = {}
    for copy in copies:
        direction = copy.device, copy.name
        # Copies are in the order of their start, so these began before.
        for other_direction, end in running_until.items():
            if other_direction != direction and end > copy.start:
                moments.append((copy.start, min(copy.end, end)))
        running_until[direction] = max(copy.end, running_until.get(direction, 0))
    return moments


POSSIBLE = Metric("possible_fraction", possible)
ON_CORES = Metric("possible_on_cores_fraction")
SAVED = Metric(
    "saved_fraction",
    lambda times: 1 - times[TOGETHER] / sum(times.parts(TOGETHER)),
    means="the share of the parts' added times that is saved: 0 is one after the other, below 0 is "
    "worse",
    share=lambda saved, result: saved / max(LEAST, result.metrics.get(ON_CORES.name, 1.0)),
    limits=(-1.0, 1.0),
    needs_queue_from=0.2,
    bands=(
        Band(LOWEST, "hindered", "Computing and copying slowed each other down"),
        Band(-0.2, "serial", "Computing and copying went on one after the other"),
        Band(0.2, "partly", "Computing and copying overlapped for a part of what the cores allow"),
        Band(
            0.8,
            "parallel",
            "Computing and copying went on at the same time, as far as the cores allow",
        ),
    ),
)

BOTH_WAYS_BESIDE = Count(
    "computed_while_copied_both_ways",
    "multiplications ran while results travelled in both directions",
    case=TOGETHER,
    tally=computed_while_copied_both_ways,
    metric=SAVED.name,
    title="Both ways beside computing",
    bands=(
        Band(LOWEST, "serial", "No, computing and both directions did not go on at the same time"),
        Band(IN_PART, "partly", "In part, computing and both directions went on at the same time"),
        Band(MOSTLY, "parallel", "Yes, computing and both directions went on at the same time"),
    ),
)
A_WAY_BESIDE = Count(
    "copied_beside_computation",
    "multiplications ran while a result was copied, in whichever direction",
    case=TOGETHER,
    tally=copied_beside_computation,
    bands=(
        Band(LOWEST, "serial", "The copies waited for the computation"),
        Band(IN_PART, "partly", "In part, copies ran beside the computation"),
        Band(MOSTLY, "alongside", "Copies ran beside the computation"),
    ),
)


def has_one_worker_for_both(answered: Answered) -> bool:
    """Return whether a second worker could copy to a device while the first one computes."""
    backend, meaning = answered.result.backend, answered.result.bands.get(BOTH_WAYS_BESIDE.name)
    one_worker = backend["engine"] == "async" and backend["workers_per_device"] == 1
    return one_worker and meaning == "serial" and not answered.on_gpus


EXPERIMENT = Experiment(
    name="three-way",
    summary="Compute while data travel both ways?",
    position=5,
    exercises=(
        Exercise(3, "Can two devices compute while data travel between them?"),
        Exercise(
            4, "What does a profiler show of how efficient that is?", options="--trace FILE.json"
        ),
    ),
    program=program,
    case=TOGETHER,
    metrics=(SAVED, POSSIBLE, ON_CORES),
    counts=(BOTH_WAYS_BESIDE, A_WAY_BESIDE),
    changes=(
        with_queue("the parts should go on at the same time"),
        Change(
            has_one_worker_for_both,
            "A second worker for each queue (--workers 2): one alone copies to its device and "
            "computes on it in turn.",
        ),
        LESS_NOISE,
        replace(
            MORE_CORES_OR_GPUS,
            # The cores, and not the longest part, limit what can be saved.
            when=lambda answered: (
                answered.result.metrics[POSSIBLE.name] - answered.result.metrics[ON_CORES.name]
                > LEAST
            ),
        ),
        Change(
            lambda answered: not answered.is_in(SAVED.name, "parallel"),
            "Parts that hinder each other less, in caches and memory: smaller matrices (--size) or "
            "fewer --copies.",
        ),
        Change(
            lambda _: True,
            "A shorter longest part (--copies): all at once can take no less than that.",
        ),
    ),
    settings=OF_COPIES,
    options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 720, "products": 15}},
)
