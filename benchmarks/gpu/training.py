"""Data-parallel training of LeNet: two streams of one GPU, each with half of every batch, against one stream.

And the whole GPU: its kernels issued one by one, against a step that is recorded and replayed.
"""

from collections.abc import Callable
from dataclasses import replace

from backends import Backend, BackendError
from backends.registry.variants import variants_of
from backends.torch.variants import GRAPH_REPLAY
from benchmarks.gpu.parts import PartResult, Place, rate, times_as_fast
from benchmarks.harness.targets import Finding
from parallel_core.measurement.result import Case, Timing
from parallel_core.measurement.timing import interleave
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params

BATCHES = {"gpu": 40, "cpu": 2}
"""Steps in one timing."""
SIZES = {"gpu": (256, 1024), "cpu": (32,)}
ONE, TWO, WHOLE = "one stream", "two streams", "the whole device"
GAINS = ((TWO, ONE), (f"{WHOLE}, replayed", WHOLE), (f"{TWO}, replayed", f"{ONE}, replayed"))


def measure(place: Place) -> PartResult:
    """Train on synthetic images in every way that this GPU allows, in turn; the first losses must agree."""
    ways, skipped = ways_to_train(place)
    steps = BATCHES[place.kind]
    data = synthetic("only speed is asked for", train=steps * max(SIZES[place.kind]), test=10)
    cases: list[Case] = []
    findings, problems = [], []
    for size in SIZES[place.kind]:
        losses: dict[str, float] = {}
        settings = Settings(1, size, limit=steps)

        def trainer(way: str, settings: Settings = settings, losses: dict[str, float] = losses) -> Callable[[], Timing]:
            backend, count = ways[way]
            params = [get_params(backend, device) for device in backend.devices[:count]]

            def epoch() -> Timing:
                # From where the last one ended.
                trained = train_epoch(backend, params, data, settings, 1)
                losses.setdefault(way, trained.losses[-1])
                return trained.dispatch_seconds, trained.seconds

            return epoch

        timed = {case.name: case for case in interleave({way: trainer(way) for way in ways}, place.rounds)}
        cases += [replace(case, name=f"{way}, batch {size}") for way, case in timed.items()]
        findings += [
            Finding(f"{place.framework}: {way}, batch {size}", rate(case, steps * size), "images/s")
            for way, case in timed.items()
        ]
        for better, usual in GAINS:
            if {better, usual} <= timed.keys():
                name = f"{place.framework}: training, {better} / {usual}, batch {size}"
                findings.append(Finding(name, times_as_fast(timed[better], timed[usual])))
        first, last = min(losses.values()), max(losses.values())
        # A loss that is not a number fails this too.
        if not last - first <= 1e-3 * abs(last):
            problems.append(f"the losses after {steps} steps differ: {losses}")
    parameters = {"steps": steps, "batches": SIZES[place.kind], "data": data.source}
    return PartResult(tuple(findings), (), tuple(problems), tuple(skipped), parameters, cases)


def ways_to_train(place: Place) -> tuple[dict[str, tuple[Backend, int]], list[str]]:
    """Return backends with how many of their devices to train on, by way, and why other ways cannot be had."""
    ways, skipped = {}, []
    variants = {"": (), ", replayed": (GRAPH_REPLAY.name,)}
    for end in variants if GRAPH_REPLAY in variants_of(place.framework) else [""]:
        try:
            ways[f"{WHOLE}{end}"] = place.load(*variants[end]), 1
            streams = place.load_two_streams(*variants[end])
            ways |= {f"{ONE}{end}": (streams, 1), f"{TWO}{end}": (streams, 2)}
        except BackendError as error:
            skipped.append(f"{place.framework}: training on {TWO}{end} ({error})")
    return ways, skipped
