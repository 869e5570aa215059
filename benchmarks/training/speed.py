"""Images a second of our data-parallel training, against one device, the book's plain loop and two
threads.

    python -m benchmarks.training.speed

A logical CPU device is a core. One device and the book's loop get a single core for all they do,
the preparation of batches included; two devices, and one process with two intra-operator threads or
with two of MXNet's contexts, get two.

What two devices lose of their factor of 2: the host, whose Python has no core of its own, prepares
and launches two halves in place of one whole; they meet in every step, so each waits for the slower
one; and the sum passes from thread to thread. And two cores of a machine may give less than twice
what one gives. Variants part these. Two processes that never meet lose the machine's part alone;
against one device with a whole batch they also lose what each step takes of its own. So do two
devices that divide a batch, but not if it grows with them, as the book advises: what a step takes
of its own then stands against as many rows as on one device. Two devices of one process without
exchange lose the host's part, too. The processor's time parts them in another way: images a second
are the cores at work, divided by the processor's time for an image. So two devices fall short of
two by cores that idle, or by images that take the processor longer.

The variants' processes live side by side and train in turns, an epoch each. Ratios are of the
fastest turns, in which no neighbour of the machine disturbed them; images a second are of the
median ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    ratio_of_turns,
    refuse_disagreement,
    take_turns,
    worker,
)
from benchmarks.harness.targets import Finding, Target, scaled
from parallel_core.measurement.confidence_intervals import median_interval

BACKENDS = ("mxnet", "torch")
BATCH, SMALL, LARGE = 256, 128, 512
IMAGES = 20 * BATCH
QUICK_IMAGES = 4 * BATCH
TURNS = 10
PLAIN = f"the book's loop, 1 core, batch {BATCH}"
THREADS = f"the book's loop, 2 threads, batch {BATCH}"
CONTEXTS = f"the book's loop, 2 devices, batch {BATCH}"
APART = f"ours, 2 processes apart, batch {SMALL}"
ALONE = f"ours, 2 devices without exchange, {BATCH} rows"
BEST_PLAIN = {"mxnet": (THREADS, CONTEXTS), "torch": (THREADS,)}
"""The plain loops that one process can run on two cores; PyTorch has one CPU device."""


def ours(devices: int, batch: int = BATCH) -> str:
    """Name a variant of ours."""
    return f"ours, {devices} device{'s' if devices > 1 else ''}, batch {batch}"


@benchmark("training/speed", rounds=5)
def main(rounds: int, quick: bool) -> Report:
    """Hold our data-parallel training against one device and against the book's loop written
    plainly.
    """
    images, turns = (QUICK_IMAGES, 2) if quick else (IMAGES, TURNS)
    processes: dict[str, list[Measured]] = {}
    findings = []
    for name in BACKENDS:
        by_variant = take_turns(variants(name, images), rounds, turns)
        for batch in (BATCH, SMALL):
            same = {
                variant: measured
                for variant, measured in by_variant.items()
                if variant.endswith(f"batch {batch}")
            }
            refuse_disagreement(same, "loss")
        findings += [
            Finding(f"{name}: {words}", *rest)
            for words, *rest in findings_of(name, by_variant, images)
        ]
        processes |= {f"{name}: {variant}": measured for variant, measured in by_variant.items()}
    return Report(
        "Data-parallel training of LeNet",
        findings,
        processes,
        parameters={"images": images, "turns": turns},
    )


def variants(name: str, images: int) -> list[Variant]:
    """Make one framework's commands; the first epoch warms up and those that follow are timed."""
    own = partial(worker, "training", backend=name, images=images)
    plain = partial(worker, "plain_training", framework=name, batch_size=BATCH, images=images)
    # Neighbours take their turns one after the other.
    return [
        *(
            Variant(loop, plain(threads=2) if loop == THREADS else plain(threads=1, devices=2))
            for loop in BEST_PLAIN[name]
        ),
        Variant(ours(2, LARGE), own(devices=2, batch_size=LARGE)),
        Variant(ours(2), own(devices=2, batch_size=BATCH)),
        Variant(ours(1), own(devices=1, batch_size=BATCH), "one"),
        Variant(PLAIN, plain(threads=1), "one"),
        Variant(ALONE, own(devices=2, batch_size=BATCH, exchange=None)),
        Variant(APART, own(devices=1, batch_size=SMALL), "each"),
        Variant(ours(1, SMALL), own(devices=1, batch_size=SMALL), "one"),
        Variant(ours(2, SMALL), own(devices=2, batch_size=SMALL)),
    ]


def ratios(name: str) -> list[tuple[str, str, float | None]]:
    """List whose images a second are held against whose, and the least that the ratio should be."""
    return [
        (ours(2), ours(1), 1.9),
        # Each of the two has as many rows as the one.
        (ours(2, LARGE), ours(1), 1.9),
        (ours(2, SMALL), ours(1, SMALL), 2 * 0.93),
        # Two processes that never meet have 128 rows each: against 128, they miss what the machine
        # lacks; against 256, also what each step takes of its own, however many rows it has. Two
        # devices cannot give more.
        (APART, ours(1, SMALL), None),
        (APART, ours(1), None),
        (ALONE, APART, None),
        (ours(2), ALONE, None),
        *((ours(2), loop, 1.0) for loop in BEST_PLAIN[name]),
        (ours(1), PLAIN, 1.0),
    ]


def findings_of(
    name: str, measured: Mapping[str, Sequence[Measured]], images: int
) -> Iterator[tuple[Any, ...]]:
    """List one framework's ratios of images a second, how many cores were at work on average, the
    processor's time for an image against one device's, and the images a second of every variant:
    name, interval, unit and target of each.
    """

    def weight(variant: str) -> int:
        # An epoch of two processes has twice as many images.
        return 2 if variant == APART else 1

    for mine, other, bound in ratios(name):
        ratio = scaled(
            ratio_of_turns(min, measured[other], measured[mine]), weight(mine) / weight(other)
        )
        yield f"{mine} / {other}", ratio, "×", bound and Target("at least", bound)
        if other == ours(1) and bound:
            yield (
                f"{mine} / {other}, median turns",
                ratio_of_turns(median, measured[other], measured[mine]),
            )
    share = median_interval(
        [one.median("batches") / one.median("epoch") for one in measured[ours(2)]]
    )
    yield "the input pipeline's share of an epoch", scaled(share, 100), "%", Target("at most", 2)
    one = ours(1, SMALL)
    for variant in (one, ours(2), ours(2, LARGE), ALONE, APART):
        taken = [
            process.median("processor") / process.median("epoch") for process in measured[variant]
        ]
        yield f"cores at work: {variant}", median_interval(taken), ""
    for variant in (ours(2), ALONE, APART):
        ratio = scaled(
            ratio_of_turns(min, measured[variant], measured[one], "processor"), 1 / weight(variant)
        )
        yield f"processor's time for an image: {variant} / {one}", ratio
    for variant, processes in measured.items():
        rates = [weight(variant) * images / process.median("epoch") for process in processes]
        yield variant, median_interval(rates), "images/s"


if __name__ == "__main__":
    main()
