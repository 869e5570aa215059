"""Overlap: can results travel to another device while the next ones are computed?

Book: Dive into Deep Learning, "Automatic Parallelism", computation and communication.

Prediction: A result can be copied while the next one is computed, if the copy has a separate queue
and core. The book copies to the host, in new memory, on the queue that computes; most of its
published runs took longer with both at once than one after the other, so little is expected of its
way.

Method: Up to 25 matrix multiplications are timed, then the copying of their results to another
device, then both together. A multiplication takes far longer than copying its result through the
memory that CPU devices share, so each result is copied as often as makes both parts take about the
same time: overlap can save most then. Matrices are so large that issuing a copy is a small part of
it. Copies go to the same buffers in turn, because memory that is touched for the first time costs
more than the copy. Before copies are timed in isolation their sources are read once, since together
they are read when they have just been written. The book's way is timed beside ours. On GPUs both
copy to the host.

Look at: how many results were copied while something was multiplied, for half of their copying or
more, our way and the book's, and the share of the copies' time during which something was
multiplied, both from repetitions that the framework's profiler recorded; then, by the clock,
`overlap_efficiency`, the time saved as a share of the shorter part, and the same for the book's
way; `price_of_overlap`, how much longer the multiplications take while results are copied.

Read: The last result does not count, for nothing is left to multiply while it is copied; copies
that wait for the computation give 0, on a busy machine too. Of `overlap_efficiency` 0 is none, 1 is
all, negative is worse than one after the other. It says much only if both parts take about the same
time. More than 1 means that a part was slower in isolation: copies then have to be launched first,
by a thread that they share cores with, and together they are launched while results are computed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from backends import Array, Device
from backends.registry.variants import COPY_ON_COMPUTE_QUEUE
from parallel_core.experiments import copying, workloads
from parallel_core.experiments.runner import changes
from parallel_core.experiments.runner.counts import Count, bands_at_once
from parallel_core.experiments.runner.declaration import OF_COPIES, Experiment
from parallel_core.experiments.runner.formulas import hidden_share
from parallel_core.experiments.runner.metrics import Metric, bands_of_gain
from parallel_core.experiments.runner.tallies import alongside, copied_beside_computation
from parallel_core.experiments.runner.trial import Trial
from parallel_core.experiments.runner.work import Work

RUN, COPY, TOGETHER = "run", "copy", "run and copy together"
BOOK_COPY, BOOK_TOGETHER = "copy the book's way", "together the book's way"

# If nothing hides, both ways take as long as their parts; the parts are timed as one unit too.
SIZE, PRODUCTS, COPIES = copying.chosen_to_copy(copying.destination, 9)


def program(
    trial: Trial,
    size: Annotated[int, SIZE],
    products: Annotated[int, PRODUCTS],
    copies: Annotated[int, COPIES],
) -> None:
    """Time matrix multiplications, the copying of their results to another device, and both
    together.
    """
    time_parts(trial, products, size, copies)
    if larger_size := workloads.larger_size_to_count(trial, TOGETHER, size):
        count_larger(trial, products, larger_size)
    trial.run()
    copying.note_issuing(trial, COPY)


def time_parts(trial: Trial, products: int, size: int, copies: int) -> None:
    """Check the copied results, and register both parts and both together, the book's way too."""
    source = trial.devices[0]
    destination = copying.destination(trial)
    x = trial.normal(size, source)
    fresh_buffers = copying.buffers_for(trial, size, destination, products)
    run_and_copy(trial, x, products, destination, fresh_buffers, 1)
    a = trial.backend.to_numpy(x)
    trial.check("copied products", fresh_buffers, [a @ a] * products)

    run = workloads.multiplications(trial, x, products, source)
    results = run.launch()
    buffers = copying.buffers_in_turn(trial, size, destination)
    copy = copying.copies_of(trial, results, destination, buffers, copies, source)
    read_once = copying.copies_of(trial, results, destination, buffers, 1, source)
    both = Work(lambda: run_and_copy(trial, x, products, destination, buffers, copies))
    trial.time(RUN, run)
    trial.time(COPY, copy, before=read_once.launch)
    trial.time(TOGETHER, both, parts=(RUN, COPY), bare=(run, copy), hides=COPY)
    workloads.time_beside(trial, RUN, both)
    # The book's way has no bare time: it drops each copy at once, and one unit would keep them all.
    copy_to_host = Work(lambda: copy_the_book_s_way(trial, results, copies))
    trial.time(BOOK_COPY, copy_to_host, before=read_once.launch)
    run_and_copy_to_host = Work(lambda: copy_the_book_s_way(trial, run.launch(), copies))
    trial.time(BOOK_TOGETHER, run_and_copy_to_host, parts=(RUN, BOOK_COPY))


def count_larger(trial: Trial, products: int, size: int) -> None:
    """Let larger matrices than those that are timed be multiplied and copied for the counts."""
    destination = copying.destination(trial)
    x = trial.normal(size, trial.devices[0])
    buffers = copying.buffers_in_turn(trial, size, destination)
    copies = copying.copies_to_hide(trial, destination, size).value
    trial.count_as(TOGETHER, lambda: run_and_copy(trial, x, products, destination, buffers, copies))
    trial.count_as(
        BOOK_TOGETHER,
        lambda: copy_the_book_s_way(trial, workloads.multiplied(trial, x, products), copies),
    )


def copy_the_book_s_way(trial: Trial, results: Sequence[Array], copies: int) -> Sequence[Array]:
    """Launch copies of each result to the host on the queue that computes; return the results."""
    for result in results:
        for _ in range(copies):
            trial.backend.launch(trial.backend.ops.to_host, result)
    return results


def run_and_copy(
    trial: Trial, x: Array, products: int, device: Device, buffers: list[Array], copies: int
) -> tuple[Array, ...]:
    """Launch multiplications, and after each one the copies of the result before; return the
    results.
    """
    # If all multiplications were launched first, a copy from a GPU would wait for all of them.
    matmul = trial.backend.ops.matmul
    results = [trial.backend.launch(matmul, x, x)]
    for index in range(products):
        if len(results) < products:
            results.append(trial.backend.launch(matmul, x, x))
        copying.copy_in_turn(trial, buffers, index, results[index], device, copies)
    return tuple(results)


OURS = Metric(
    "overlap_efficiency",
    hidden_share(TOGETHER),
    title="Copies hidden",
    means="the share of the shorter part that is hidden: 0 is none, 1 is all, below 0 is worse "
    "than in turn",
    limits=(-1.0, 1.0),
    in_percent=True,
    # Together takes as long as the longer part, at the least.
    at_most=lambda _: 1.0,
    needs_queue_from=0.2,
    bands=bands_of_gain(
        hindered="Computing and copying slowed each other down",
        serial="Copies did not hide under the computation",
        partly="Copies hid in part under the computation",
        parallel="Copies hid under the computation",
        parallel_code="hidden",
    ),
)
THE_BOOK_S = replace(
    OURS,
    name="book_overlap_efficiency",
    title="",
    formula=hidden_share(BOOK_TOGETHER),
    about="the book's way",
)

ALONGSIDE = Count(
    "copied_beside_computation",
    "results were copied while something was multiplied",
    case=TOGETHER,
    tally=copied_beside_computation,
    alongside=alongside,
    at_once=True,
    metric=OURS.name,
    title="Copied while computing",
    bands=bands_at_once(
        "No, the copies waited for the computation",
        "In part, copies ran beside the computation; other results waited for it",
        "Yes, copies ran beside the computation",
        "alongside",
    ),
)
THE_BOOK_S_COUNT = replace(
    ALONGSIDE,
    name="book_copied_beside_computation",
    case=BOOK_TOGETHER,
    counted="results if copied as in the book",
    metric=THE_BOOK_S.name,
    title="",
)

EXPERIMENT = Experiment(
    name="overlap",
    question="Do copies hide under computation?",
    position=2,
    program=program,
    usual_deviation=0.02,
    case=TOGETHER,
    metrics=(OURS, THE_BOOK_S, workloads.price_of_overlap(TOGETHER)),
    counts=(ALONGSIDE, THE_BOOK_S_COUNT),
    changes=(
        changes.equal_parts(RUN, COPY, "copies"),
        changes.with_queue("copies should hide under the computation"),
        changes.without_variant(COPY_ON_COMPUTE_QUEUE, "A dedicated queue for copies"),
        changes.with_variant(
            COPY_ON_COMPUTE_QUEUE,
            "Copies on the queue that computes",
            OURS.name,
            "partly",
            "hidden",
        ),
        changes.without_queue(OURS.name, ("partly", "hidden"), "nothing should hide"),
        changes.LESS_NOISE,
        changes.MORE_CORES_OR_GPUS,
    ),
    settings=OF_COPIES,
    queued_case=RUN,
    key_timeline=1,
    options={
        "full": {"rounds": 3, "products": 12},
        "quick": {"rounds": 3, "size": 600, "products": 10},
    },
)
