"""Data-parallel training of LeNet: two streams of one GPU, each with half of every batch, against one stream.

And the whole GPU: its kernels issued one by one, against a step that is recorded and replayed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from backends import Array, Backend, BackendError
from backends.registry.variants import variants_of
from backends.torch.variants import GRAPH_REPLAY
from benchmarks.gpu.part import PartResult, Place, load_one, load_two_streams
from benchmarks.gpu.timing import by_round, rate, seconds_of
from benchmarks.harness.targets import Finding
from parallel_core.measurement.result import Case, Timing
from parallel_core.measurement.timing import interleave
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import Dataset, synthetic
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params

__all__ = ["measure"]

BATCHES = {"gpu": 40, "cpu": 2}
"""Steps in one timing."""
SIZES = {"gpu": (256, 1024), "cpu": (32,)}
ONE, TWO, WHOLE = "one stream", "two streams", "the whole device"
ONE_REPLAYED, TWO_REPLAYED, WHOLE_REPLAYED = (f"{way}, replayed" for way in (ONE, TWO, WHOLE))
GAINS = ((TWO, ONE), (WHOLE_REPLAYED, WHOLE), (TWO_REPLAYED, ONE_REPLAYED))


def measure(place: Place) -> PartResult:
    """Train on synthetic images in every way that this GPU allows, in turn; the first losses must agree."""
    ways, skipped = ways_to_train(place)
    steps, rounds = BATCHES[place.kind], place.rounds
    data = synthetic("only speed is asked for", train=steps * max(SIZES[place.kind]), test=10)
    cases: list[Case] = []
    findings, problems = [], []
    for size in SIZES[place.kind]:
        losses: dict[str, float] = {}
        settings = Settings(1, size, limit=steps)
        timings = {way: trainer(*on, data, settings, partial(losses.setdefault, way)) for way, on in ways.items()}
        timed = {case.name: case for case in interleave(timings, rounds)}
        cases += [replace(case, name=f"{way}, batch {size}") for way, case in timed.items()]
        findings += [
            Finding(f"{place.framework}: {way}, batch {size}", rate(case, steps * size), "images/s")
            for way, case in timed.items()
        ]
        for better, plain in GAINS:
            if {better, plain} <= timed.keys():
                name = f"{place.framework}: training, {better} / {plain}, batch {size}"
                gain = by_round(lambda plain, better: plain / better, timed[plain], timed[better])
                findings.append(Finding(name, gain))
        first, last = min(losses.values()), max(losses.values())
        # A loss that is not a number fails this too.
        if not last - first <= 1e-3 * abs(last):
            problems.append(f"the losses after {steps} steps differ: {losses}")
    return PartResult(
        findings=tuple(findings),
        problems=tuple(problems),
        skipped=skipped,
        parameters={"steps": steps, "batches": SIZES[place.kind], "data": data.source},
        seconds=seconds_of(cases),
    )


def ways_to_train(place: Place) -> tuple[Mapping[str, tuple[Backend, int]], tuple[str, ...]]:
    """Return backends with how many of their devices to train on, by way, and why other ways cannot be had."""
    ways, skipped = {}, []
    variants = [(), (GRAPH_REPLAY.name,)] if GRAPH_REPLAY in variants_of(place.framework) else [()]
    for chosen in variants:
        whole, one, two = (WHOLE_REPLAYED, ONE_REPLAYED, TWO_REPLAYED) if chosen else (WHOLE, ONE, TWO)
        try:
            ways[whole] = load_one(place, chosen), 1
            streams = load_two_streams(place, chosen)
            ways |= {one: (streams, 1), two: (streams, 2)}
        except BackendError as error:
            skipped.append(f"{place.framework}: training on {two} ({error})")
    return ways, tuple(skipped)


def trainer(
    backend: Backend, count: int, data: Dataset, settings: Settings, on_loss: Callable[[float], object]
) -> Callable[[], Timing]:
    """Make what trains for an epoch on the first `count` devices, from where the last one ended."""
    params = [get_params(backend, device) for device in backend.devices[:count]]
    return partial(epoch, backend, params, data, settings, on_loss)


def epoch(
    backend: Backend, params: list[Array], data: Dataset, settings: Settings, on_loss: Callable[[float], object]
) -> Timing:
    """Train for an epoch, and pass its last loss to `on_loss`."""
    trained = train_epoch(backend, params, data, settings, 1)
    on_loss(trained.losses[-1])
    return trained.dispatch_seconds, trained.seconds
