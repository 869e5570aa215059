"""Images a second of our data-parallel training, against one device, the book's plain loop and two threads.

    python -m benchmarks.training.speed

A logical CPU device is a core. One device and the book's loop get a single core for all they do, the preparation of
batches included; two devices, and one process with two intra-operator threads or with two of MXNet's contexts, get two.

What two devices lose of their factor of 2: the host, whose Python has no core of its own, prepares and launches two
halves in place of one whole; they meet in every step, so each waits for the slower one; and the sum passes from thread
to thread. And two cores of a machine may give less than twice what one gives. Variants part these: two processes that
never meet lose the machine's part alone, and two devices of one process without exchange lose the host's, too. The
processor's time parts them in another way: images a second are the cores at work, divided by the processor's time for
an image. So two devices fall short of two by cores that idle, or by images that take the processor longer.
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
ALONE = f"ours, 2 devices without exchange, {BATCH} rows"
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
            cores_at_work(name, variant, processes[f"{name}: {variant}"])
            for variant in (ours(1, SMALL), ours(2), ALONE, APART)
        ]
        findings += [
            processor_time(name, variant, processes[f"{name}: {variant}"], processes[f"{name}: {ours(1, SMALL)}"])
            for variant in (ours(2), ALONE, APART)
        ]
        findings += [
            Finding(f"{name}: {variant}", median_interval(taken), "images/s") for variant, taken in rates.items()
        ]
    return Report("Data-parallel training of LeNet", findings, processes, parameters={"images": images})


def variants(name: str, images: int) -> list[Variant]:
    """Make one framework's commands; the first epoch warms up and the second is timed."""
    same = {"images": images, "epochs": 1}

    def command(devices: int, batch: int, exchange: bool = True) -> tuple[str, ...]:
        return worker("training", backend=name, devices=devices, batch_size=batch, exchange=exchange, **same)

    def plain(threads: int, devices: int = 1) -> tuple[str, ...]:
        return worker("plain_training", framework=name, threads=threads, devices=devices, batch_size=BATCH, **same)

    return [
        Variant(f"{name}: {ours(2)}", command(2, BATCH)),
        Variant(f"{name}: {ours(1)}", command(1, BATCH), "one"),
        Variant(f"{name}: {PLAIN}", plain(1), "one"),
        Variant(f"{name}: {ours(2, SMALL)}", command(2, SMALL)),
        Variant(f"{name}: {ours(1, SMALL)}", command(1, SMALL), "one"),
        Variant(f"{name}: {ALONE}", command(2, BATCH, exchange=False)),
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
        Finding(f"{name}: {ALONE} / {APART}", independent(rates[ALONE], rates[APART])),
        Finding(f"{name}: {ours(2)} / {ALONE}", independent(rates[ours(2)], rates[ALONE])),
        *(finding(ours(2), loop, 1.0) for loop in BEST_PLAIN[name]),
        finding(ours(1), PLAIN, 1.0),
        Finding(f"{name}: the input pipeline's share of an epoch", scaled(share, 100), "%", Target("at most", 2)),
    ]


def cores_at_work(name: str, variant: str, measured: list[Measured]) -> Finding:
    """Tell how many cores were at work on average while a variant trained."""
    cores = [one.median("processor") / one.median("epoch") for one in measured]
    return Finding(f"{name}: cores at work: {variant}", median_interval(cores), "")


def processor_time(name: str, variant: str, measured: list[Measured], on_one: list[Measured]) -> Finding:
    """Hold the processor's time for an image, of a variant on two cores, against one device's on one core."""
    times, others = (
        [one.median("processor") / (2 if both else 1) for one in processes]
        for processes, both in ((measured, variant == APART), (on_one, False))
    )
    return Finding(f"{name}: processor's time for an image: {variant} / {ours(1, SMALL)}", independent(times, others))


if __name__ == "__main__":
    main()
