"""Images a second of our data-parallel training, against one device, the book's plain loop and two threads.

    python -m benchmarks.training.speed

A logical CPU device is a core. One device and the book's loop get a single core for all they do, the preparation of
batches included; two devices, and one process with two intra-operator threads or with two of MXNet's contexts, get two.

What two devices lose of their factor of 2: the host, whose Python has no core of its own, prepares and launches two
halves in place of one whole; they meet in every step, so each waits for the slower one; and the sum passes from thread
to thread. And two cores of a machine may give less than twice what one gives. Two processes that never meet show how
much less: they lose that part alone.
"""

from benchmarks.harness.findings import Finding, Report, Target, benchmark
from benchmarks.harness.side_by_side import (
    Measured,
    Variant,
    independent,
    ratio_by_round,
    refuse_disagreement,
    scaled,
    take_turns,
    worker,
)
from parallel_core.measurement.confidence_intervals import median_interval

BACKENDS = ("mxnet", "torch")
BATCH, SMALL = 256, 128
IMAGES = 20 * BATCH
QUICK_IMAGES = 4 * BATCH
PLAIN = f"the book's loop, 1 core, batch {BATCH}"
THREADS = f"the book's loop, 2 threads, batch {BATCH}"
CONTEXTS = f"the book's loop, 2 devices, batch {BATCH}"
APART = f"ours, 2 processes apart, batch {SMALL}"
BEST_PLAIN = {"mxnet": (THREADS, CONTEXTS), "torch": (THREADS,)}
"""The plain loops that one process can run on two cores; PyTorch has one CPU device."""


def ours(devices: int, batch: int = BATCH) -> str:
    """Name a variant of ours."""
    return f"ours, {devices} device{'s' if devices > 1 else ''}, batch {batch}"


@benchmark("training/speed", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Hold our data-parallel training against one device and against the book's loop written plainly."""
    images = QUICK_IMAGES if quick else IMAGES
    processes = take_turns([one for name in BACKENDS for one in variants(name, images)], rounds)
    for batch in (BATCH, SMALL):
        same = {name: measured for name, measured in processes.items() if name.endswith(f"batch {batch}")}
        refuse_disagreement(same, "loss")
    findings = []
    for name in BACKENDS:
        rates = {
            variant: [(2 if variant == APART else 1) * images / one.median("epoch") for one in measured]
            for full, measured in processes.items()
            for backend, variant in [full.split(": ")]
            if backend == name
        }
        findings += targets(name, rates, processes[f"{name}: {ours(2)}"])
        findings += [
            Finding(f"{name}: {variant}", median_interval(taken), "images/s") for variant, taken in rates.items()
        ]
    return Report("Data-parallel training of LeNet", findings, processes, parameters={"images": images})


def variants(name: str, images: int) -> list[Variant]:
    """Make one framework's commands; the first epoch warms up and the second is timed."""
    same = {"images": images, "epochs": 1}

    def command(devices: int, batch: int) -> tuple[str, ...]:
        return worker("training", backend=name, devices=devices, batch_size=batch, **same)

    def plain(threads: int, devices: int = 1) -> tuple[str, ...]:
        return worker("plain_training", framework=name, threads=threads, devices=devices, batch_size=BATCH, **same)

    return [
        Variant(f"{name}: {ours(2)}", command(2, BATCH)),
        Variant(f"{name}: {ours(1)}", command(1, BATCH), "one"),
        Variant(f"{name}: {PLAIN}", plain(1), "one"),
        Variant(f"{name}: {ours(2, SMALL)}", command(2, SMALL)),
        Variant(f"{name}: {ours(1, SMALL)}", command(1, SMALL), "one"),
        Variant(f"{name}: {APART}", worker("training_apart", backend=name, processes=2, batch_size=SMALL, **same)),
        *(
            Variant(f"{name}: {loop}", plain(2) if loop == THREADS else plain(1, devices=2))
            for loop in BEST_PLAIN[name]
        ),
    ]


def targets(name: str, rates: dict[str, list[float]], on_two: list[Measured]) -> list[Finding]:
    """Hold one framework's ratios of images a second against the targets."""
    share = median_interval([one.median("batches") / one.median("epoch") for one in on_two])

    def finding(mine: str, other: str, bound: float) -> Finding:
        # Both on one core: the same one in each round.
        on_one = mine == ours(1) and other == PLAIN
        ratio = (ratio_by_round if on_one else independent)(rates[mine], rates[other])
        return Finding(f"{name}: {mine} / {other}", ratio, target=Target("at least", bound))

    return [
        finding(ours(2), ours(1), 1.9),
        finding(ours(2, SMALL), ours(1, SMALL), 2 * 0.93),
        # Both have 128 rows a device: what is missing to the first is what the machine lacks, to the second what we do.
        Finding(f"{name}: {APART} / {ours(1, SMALL)}", independent(rates[APART], rates[ours(1, SMALL)])),
        Finding(f"{name}: {ours(2)} / {APART}", independent(rates[ours(2)], rates[APART])),
        *(finding(ours(2), loop, 1.0) for loop in BEST_PLAIN[name]),
        finding(ours(1), PLAIN, 1.0),
        Finding(f"{name}: the input pipeline's share of an epoch", scaled(share, 100), "%", Target("at most", 2)),
    ]


if __name__ == "__main__":
    main()
