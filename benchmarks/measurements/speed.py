"""Images a second of our data-parallel training, against one device, the book's plain loop and two
threads.

A logical CPU device is a core. One device and the book's loop get a single core for all they do,
the preparation of batches included; two devices, and one process with two intra-operator threads or
with two of MXNet's contexts, get two.

What two devices lose of their factor of 2: the host, whose Python has no core of its own, prepares
and launches two halves in place of one whole; they meet in every step, so each waits for the slower
one; and the sum passes from thread to thread. And two cores of a machine may give less than twice
what one gives: two processes that never meet lose the machine's part alone. Against one device with
a whole batch they also lose what each step takes of its own, however many rows it has. Two devices
that divide a batch cannot give more.

The variants' processes live side by side and train in turns, an epoch each. Ratios are of the
fastest turns, in which no neighbour of the machine disturbed them; images a second are of the
median ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.harness.measurement import Measurement, Method, Report, Request
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    medians_of,
    ratio_of_fastest,
    refuse_disagreement,
    take_turns,
    worker,
)
from benchmarks.harness.targets import Finding, Target, by_round, scaled
from parallel_core.measurement.confidence_intervals import median_interval

BACKENDS = ("mxnet", "torch")
BATCH, SMALL = 256, 128
IMAGES, QUICK_IMAGES = 20 * BATCH, 4 * BATCH
TURNS, QUICK_TURNS = 10, 2
ONE = f"ours, 1 device, batch {BATCH}"
TWO = f"ours, 2 devices, batch {BATCH}"
ONE_SMALL = f"ours, 1 device, batch {SMALL}"
TWO_SMALL = f"ours, 2 devices, batch {SMALL}"
APART = f"ours, 2 processes apart, batch {SMALL}"
PLAIN = f"the book's loop, 1 core, batch {BATCH}"
THREADS = f"the book's loop, 2 threads, batch {BATCH}"
CONTEXTS = f"the book's loop, 2 devices, batch {BATCH}"
SAME_WORK = ((THREADS, CONTEXTS, TWO, ONE, PLAIN), (APART, ONE_SMALL, TWO_SMALL))
"""What trains with the same batches, and must have the same loss."""


class Ratio(NamedTuple):
    """Whose images a second are held against whose, and the least that the ratio should be."""

    variant: str
    other: str
    least: float | None


RATIOS = (
    Ratio(TWO, ONE, 1.9),
    Ratio(TWO_SMALL, ONE_SMALL, 2 * 0.93),
    Ratio(APART, ONE_SMALL, None),
    Ratio(APART, ONE, None),
    Ratio(TWO, THREADS, 1.0),
    Ratio(TWO, CONTEXTS, 1.0),
    Ratio(ONE, PLAIN, 1.0),
)


def measure(request: Request) -> Iterator[Report]:
    """Train on each backend in all ways, in turns."""
    images = QUICK_IMAGES if request.quick else IMAGES
    turns = QUICK_TURNS if request.quick else TURNS
    processes: dict[str, list[Measured]] = {}
    findings: list[Finding] = []
    for backend in BACKENDS:
        measured = take_turns(variants(backend, images), request.rounds, turns)
        for names in SAME_WORK:
            same_work = {name: measured[name] for name in names if name in measured}
            refuse_disagreement(same_work, "loss")
        findings += findings_of(backend, measured, images)
        for variant, of_variant in measured.items():
            processes[f"{backend}: {variant}"] = of_variant
    yield Report(findings, processes, parameters={"images": images, "turns": turns})


def variants(backend: str, images: int) -> list[Variant]:
    """Make one framework's commands; the first epoch warms up and those that follow are timed."""

    def ours(devices: int, batch: int) -> tuple[str, ...]:
        amounts = {"devices": devices, "batch_size": batch, "images": images}
        return worker("training", backend=backend, **amounts)

    def plain(threads: int, devices: int = 1) -> tuple[str, ...]:
        amounts = {"batch_size": BATCH, "images": images}
        return worker(
            "plain_training", framework=backend, threads=threads, devices=devices, **amounts
        )

    # Neighbours take their turns one after the other.
    in_turn = [
        Variant(THREADS, plain(threads=2)),
        Variant(TWO, ours(2, BATCH)),
        Variant(ONE, ours(1, BATCH), "one"),
        Variant(PLAIN, plain(threads=1), "one"),
        Variant(APART, ours(1, SMALL), "each"),
        Variant(ONE_SMALL, ours(1, SMALL), "one"),
        Variant(TWO_SMALL, ours(2, SMALL)),
    ]
    if backend == "mxnet":
        # PyTorch has one CPU device, MXNet as many as are asked for.
        in_turn.insert(1, Variant(CONTEXTS, plain(threads=1, devices=2)))
    return in_turn


def findings_of(
    backend: str, measured: Mapping[str, Sequence[Measured]], images: int
) -> Iterator[Finding]:
    """List one framework's ratios of images a second, the input pipeline's share of an epoch, and
    the images a second of every variant.
    """
    # An epoch of two processes has twice as many images.
    images_of = {variant: images * (2 if variant == APART else 1) for variant in measured}
    for variant, other, least in RATIOS:
        if {variant, other} <= measured.keys():
            ratio = ratio_of_fastest(measured[other], measured[variant])
            ratio = scaled(ratio, images_of[variant] / images_of[other])
            target = Target("at least", least) if least else None
            yield Finding(f"{backend}: {variant} / {other}", ratio, target=target)
    batches, epochs = (medians_of(measured[TWO], case) for case in ("batches", "epoch"))
    share = by_round(lambda batch, epoch: 100 * batch / epoch, batches, epochs)
    name = f"{backend}: the input pipeline's share of an epoch"
    yield Finding(name, share, "%", Target("at most", 2))
    for variant, processes in measured.items():
        rates = [images_of[variant] / seconds for seconds in medians_of(processes, "epoch")]
        yield Finding(f"{backend}: {variant}", median_interval(rates), "images/s")


MEASUREMENT = Measurement(
    file="training/speed",
    title="Data-parallel training of LeNet",
    question="How fast do two devices train, beside one device and the book's plain loop?",
    method=Method(1, "2026-11-23", "an epoch a turn, ratios of the fastest turns of a round"),
    measure=measure,
    rounds=5,
)
