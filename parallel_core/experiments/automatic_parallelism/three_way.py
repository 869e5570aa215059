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

Look at: how many multiplications ran for half of their time or more while results travelled in both
directions at once, and how many while at least one was copied, in a repetition that the framework's
profiler recorded; then, by the clock, `saved_fraction`, the share of the parts' added times that
doing all at once saves; `possible_fraction`, what would be saved if all took as long as the longest
part; `possible_on_cores_fraction`, the same if the cores' work takes longer than that.

Read: A count of 0 is one after the other, on a busy machine too. A worker that copies to its device
and computes on it does these in turn: with one for each of two devices all three never go on at
once. Of `saved_fraction` 0 is one after the other, negative is worse. Near the smaller bound only
more devices or cores would help; far below it something waits needlessly. A bound is not exact:
parts that share caches and memory slow each other down, and threads that spin while they wait count
as working.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from time import process_time
from typing import Annotated

import numpy as np

from backends import Array, Device
from backends.profiling import Span, Window
from parallel_core.experiments import copying, workloads
from parallel_core.experiments.runner.changes import (
    LESS_NOISE,
    MORE_CORES_OR_GPUS,
    Answered,
    Change,
    with_queue,
)
from parallel_core.experiments.runner.counts import IN_PART, MOSTLY, Count, bands_at_once
from parallel_core.experiments.runner.declaration import OF_COPIES, Exercise, Experiment
from parallel_core.experiments.runner.formulas import Times, Values
from parallel_core.experiments.runner.metrics import LOWEST, Band, Metric, bands_of_gain
from parallel_core.experiments.runner.tallies import (
    Repetition,
    Tally,
    computed_beside_copying,
    count_beside,
)
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work
from parallel_core.measurement.result import Case
from parallel_core.measurement.timing import Timing, measure
from parallel_core.system.machine import usable_cores

BOTH_WAYS, TOGETHER = "copies both ways", "all at once"
LEAST = 0.01
"""The smallest share of the parts' added times that counts as a saving."""


def other_device(trial: Trial) -> Device:
    """Return the second device; raises RequestError if there is only one."""
    trial.refuse_single_device("three-way", "copies between devices")
    return trial.devices[1]


# A round times three parts, all at once (as long as they in turn if nothing overlaps), and four
# works as one unit.
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
    part_clock = PartClock(trial, parts)
    for name, works in parts.items():
        trial.time(name, *works, take=partial(part_clock.take, name))
    together = Work(lambda: all_at_once(trial, matrices, results, buffers, copies))
    trial.time(TOGETHER, together, parts=parts, bare=(*computing, *sending), hides=BOTH_WAYS)
    if larger_size := workloads.larger_size_to_count(trial, TOGETHER, size):
        count_larger(trial, products, larger_size)
    cases = trial.run()
    copying.note_issuing(trial, BOTH_WAYS)

    # GPUs work without the cores.
    are_cpus = all(device.kind == "cpu" for device in devices)
    core_seconds = part_clock.core_seconds(cases) if are_cpus else 0.0
    seconds_of_parts = sum(cases[name].median for name in parts)
    on_cores = core_seconds / usable_cores() / seconds_of_parts
    trial.found_by(ON_CORES.name, partial(possible, on_cores=on_cores), is_ratio=False)

    fresh_buffers = [
        copying.buffers_for(trial, size, destination, products) for destination in destinations
    ]
    multiplied = all_at_once(trial, matrices, results, fresh_buffers, 1)
    for number, matrix in enumerate(matrices):
        a = trial.backend.to_numpy(matrix)
        # Products of the two devices alternate.
        computed = [*multiplied[number::2], *fresh_buffers[number]]
        trial.check("products or copies", computed, [a @ a] * 2 * products)


class PartClock:
    """A clock of parts that also measures how long the process worked on its cores meanwhile."""

    def __init__(self, trial: Trial, parts: Mapping[str, Sequence[Work]]) -> None:
        self._trial = trial
        self._parts = parts
        self._rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in parts}
        """By part and timing, the seconds that it took and those on the cores."""

    def take(self, name: str) -> Timing:
        """Time the works of a part together."""
        before = process_time()
        works = self._parts[name]
        timing = measure(self._trial.backend, lambda: [work.launch() for work in works])
        _, seconds = timing
        self._rounds[name].append((seconds, process_time() - before))
        return timing

    def core_seconds(self, cases: Mapping[str, Case]) -> float:
        """Return the seconds on the cores that all parts take together: the sum of medians.

        They are those of the rounds that the cases kept.
        """
        total = 0.0
        for name, rounds in self._rounds.items():
            kept_seconds = cases[name].seconds
            total += median(on_cores for seconds, on_cores in rounds if seconds in kept_seconds)
        return total


def count_larger(trial: Trial, products: int, size: int) -> None:
    """Let larger matrices than those that are timed be multiplied and copied for the counts."""
    first, second = trial.devices[0], other_device(trial)
    matrices = [trial.normal(size, device) for device in (first, second)]
    results = [list(workloads.multiplied(trial, x, products)) for x in matrices]
    buffers = [copying.buffers_in_turn(trial, size, device) for device in (second, first)]
    copies = copying.copies_to_hide(trial, second, size).value
    trial.count_as(TOGETHER, lambda: all_at_once(trial, matrices, results, buffers, copies))


def all_at_once(
    trial: Trial,
    matrices: list[Array],
    results: list[list[Array]],
    buffers: list[list[Array]],
    copies: int,
) -> list[Array]:
    """Launch, in turn, a multiplication on each device and the copies of an earlier result to the
    other device.

    Returns the products of the two devices in turn.
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
    """Return the largest share of the parts' added times that doing all at once can save.

    `on_cores` is the cores' work for the parts, as a share of the added times.
    """
    seconds_of_parts = times.parts(TOGETHER)
    in_turn = sum(seconds_of_parts)
    longest = np.maximum.reduce(seconds_of_parts)
    # The cores' work is a share, because it drifts as the times of the parts do.
    least = np.maximum(longest, on_cores * in_turn)
    return 1 - least / in_turn


def computed_while_copied_both_ways(repetition: Repetition) -> Tally:
    """Count the computations for half of whose time copies in two directions ran at once.

    Nothing is counted unless the profiler recorded as many copies as were launched: JAX's records
    some copies twice, and does not tell their direction.
    """
    computations, copies = repetition.of_kind("compute"), repetition.of_kind("copy")
    launched = [call for call in repetition.launches if call.name.startswith("copy_to")]
    if len(copies) != len(launched):
        return Tally(0, 0)
    return Tally(count_beside(computations, moments_of_both_ways(copies)), len(computations))


def moments_of_both_ways(copies: Sequence[Span]) -> list[Window]:
    """Return the moments at which copies in different directions ran, in the order of their start.

    A copy between CPUs is recorded on its destination. A copy from or to a GPU is recorded on the
    GPU, and its name tells the direction.
    """
    moments: list[Window] = []
    end_by_direction: dict[tuple[str, str], int] = {}
    for copy in copies:
        direction = copy.device, copy.name
        # Copies are in the order of their start: those of `end_by_direction` began before this one.
        for other_direction, end in end_by_direction.items():
            if other_direction != direction and end > copy.start:
                moments.append(Window("both ways", copy.start, min(copy.end, end)))
        earlier_end = end_by_direction.get(direction, 0)
        end_by_direction[direction] = max(copy.end, earlier_end)
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
    bands=bands_of_gain(
        hindered="Computing and copying slowed each other down",
        serial="Computing and copying went on one after the other",
        partly="Computing and copying overlapped for a part of what the cores allow",
        parallel="Computing and copying went on at the same time, as far as the cores allow",
    ),
)

BOTH_WAYS_BESIDE = Count(
    "computed_while_copied_both_ways",
    "multiplications ran while results travelled in both directions",
    case=TOGETHER,
    at_once=True,
    tally=computed_while_copied_both_ways,
    metric=SAVED.name,
    title="Both ways beside computing",
    bands=bands_at_once(
        "No, computing and both directions did not go on at the same time",
        "In part, computing and both directions went on at the same time, and the other "
        "multiplications ran beside one direction or none",
        "Yes, computing and both directions went on at the same time",
    ),
)
A_WAY_BESIDE = Count(
    "copied_beside_computation",
    "multiplications ran while a result was copied, in whichever direction",
    case=TOGETHER,
    tally=computed_beside_copying,
    at_once=True,
    bands=(
        Band(LOWEST, "serial", "The copies waited for the computation"),
        Band(
            IN_PART,
            "partly",
            "In part, copies ran beside the computation, and the other multiplications ran while "
            "nothing was copied",
        ),
        Band(MOSTLY, "alongside", "Copies ran beside the computation"),
    ),
)


def has_one_worker_for_both(answered: Answered) -> bool:
    """Return whether copies and computations took turns because each CPU device has one worker."""
    if answered.on_gpus:
        return False
    backend = answered.result.backend
    has_one_worker = backend["engine"] == "async" and backend["workers_per_device"] == 1
    took_turns = answered.result.bands.get(BOTH_WAYS_BESIDE.name) == "serial"
    return has_one_worker and took_turns


EXPERIMENT = Experiment(
    name="three-way",
    question="Compute while data travel both ways?",
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
