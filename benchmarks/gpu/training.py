"""Data-parallel training of LeNet: two streams of one GPU, each with half of every batch, against one stream."""

from collections.abc import Callable
from functools import partial

from backends import Array, Backend, BackendError
from benchmarks.gpu.part import Found, Place, load_one, load_two_streams
from benchmarks.gpu.timing import by_round, rate, seconds_of
from benchmarks.targets import Finding
from parallel_core.dataset import Dataset, synthetic
from parallel_core.measurement import interleave
from parallel_core.result import Case, Timing
from parallel_core.training import Settings, get_params, train_epoch

__all__ = ["measure"]

BATCHES = {"gpu": 40, "cpu": 2}
"""Steps in one timing."""
SIZES = {"gpu": (256, 1024), "cpu": (32,)}
STREAMS = ("one stream", "two streams")


def measure(place: Place) -> Found:
    """Train on made-up images in turn on one stream and on both; the first losses must agree."""
    skipped = []
    try:
        backend = load_two_streams(place)
    except BackendError as error:
        skipped.append(f"{place.framework}: training on two streams of one GPU ({error})")
        backend = load_one(place)
    steps, rounds = BATCHES[place.kind], place.rounds
    data = synthetic("only speed is asked for", train=steps * max(SIZES[place.kind]), test=10)
    cases: list[Case] = []
    findings, problems = [], []
    for size in SIZES[place.kind]:
        losses: dict[str, float] = {}
        timings = {
            f"{STREAMS[count - 1]}, batch {size}": trainer(backend, data, Settings(1, size, limit=steps), count, losses)
            for count in ((1,) if skipped else (1, 2))
        }
        timed = interleave(timings, rounds)
        cases += timed
        findings += [Finding(f"{place.framework}: {one.name}", rate(one, steps * size), "images/s") for one in timed]
        if len(timed) == 2:
            name = f"{place.framework}: training, two streams / one, batch {size}"
            findings.append(Finding(name, by_round(lambda one, two: one / two, *timed)))
        first, last = min(losses.values()), max(losses.values())
        # Not so where one of them is not a number either.
        if not last - first <= 1e-3 * abs(last):
            problems.append(f"the losses after {steps} steps differ: {losses}")
    return Found(
        findings=tuple(findings),
        problems=tuple(problems),
        skipped=tuple(skipped),
        parameters={"steps": steps, "batches": SIZES[place.kind], "data": data.source},
        seconds=seconds_of(cases),
    )


def trainer(
    backend: Backend, data: Dataset, settings: Settings, count: int, losses: dict[str, float]
) -> Callable[[], Timing]:
    """Make what trains for an epoch on the first `count` devices; its first loss of all goes to `losses`."""
    params = [get_params(backend, device) for device in backend.devices[:count]]
    return partial(epoch, backend, params, data, settings, losses)


def epoch(backend: Backend, params: list[Array], data: Dataset, settings: Settings, losses: dict[str, float]) -> Timing:
    """Train for an epoch from where the last one ended."""
    found = train_epoch(backend, params, data, settings, 1)
    losses.setdefault(STREAMS[len(params) - 1], found.losses[-1])
    return found.dispatch_seconds, found.seconds
