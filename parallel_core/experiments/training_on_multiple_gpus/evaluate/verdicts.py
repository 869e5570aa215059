"""What the numbers of the `evaluate` experiment mean, in sentences that follow from them."""

from collections.abc import Mapping

from backends import Backend
from parallel_core.experiments.changes import LESS_NOISE, more_cores, with_queue
from parallel_core.experiments.training_on_multiple_gpus.evaluate.scores import Compared
from parallel_core.experiments.training_on_multiple_gpus.scaled_batches import counted_devices
from parallel_core.measurement.confidence_intervals import Interval, decide, with_bounds
from parallel_core.system.formatting import listed, percent
from parallel_core.system.machine_watch import MachineWatch
from parallel_core.training.checkpoints import Checkpoint

__all__ = ["about_counts", "about_division", "about_network", "about_speed", "origin", "what_would_change"]

NAMED = 3
"""How many images of unequal classes are named."""


def about_counts(compared: Compared) -> str:
    """Say whether the count of correct images is the same everywhere, and where it is not and why."""
    images, checked = len(compared.labels), len(compared.numpy)
    counts = set(compared.counted.values())
    by_numpy = f"NumPy agrees on {'all' if checked == images else f'the first {checked:,}'} of them"
    if not compared.unequal and len(counts) == 1:
        (count,) = counts
        told = f"{count:,} of {images:,} images correctly (accuracy {count / images:.4f})"
        if len(compared.counted) == 1:
            return f"One device classified {told}, and {by_numpy}."
        devices = listed([where.split()[0] for where in compared.counted])
        return f"{devices} devices classified the same {told}, equal to the last image, and {by_numpy}."
    found = listed([f"{count:,} on {where}" for where, count in compared.counted.items()])
    sentence = f"Of {images:,} images {found} are classified correctly"
    if not compared.unequal:
        return f"{sentence}, though the scores lead to the same classes everywhere: the counts contradict them."
    named = [
        f"image {one.image} in {one.where} ({one.margin:.0e} of the largest score between its two highest)"
        for one in compared.unequal[:NAMED]
    ]
    others = f", and {len(compared.unequal) - NAMED} more" if len(compared.unequal) > NAMED else ""
    moved = max(compared.device_difference, compared.error)
    return (
        f"{sentence}. Unlike on one device is the class of {listed(named)}{others}: scores differ by up to {moved:.0e} "
        "between numbers of devices and frameworks, for their kernels add up in different orders."
    )


def about_speed(speeds: Mapping[int, Interval], speedup: Interval, watch: MachineWatch | None) -> str:
    """Say how many images a second all devices evaluated, and whether that is more than on one."""
    if watch is not None and not watch.allows_verdict:
        return f"How fast that was cannot be said: other work took {percent(watch.taken_share)} of the cores' time."
    count = max(speeds)
    if count == 1:
        return f"One device evaluated {with_bounds(speeds[1])} images/s."
    told = (
        f"{with_bounds(speedup)} × as fast as one, {with_bounds(speeds[count])} instead of "
        f"{with_bounds(speeds[1])} images/s"
    )
    match decide(speedup, 1.0):
        case 1:
            return f"{counted_devices(count)} were {told}."
        case 0:
            return f"{counted_devices(count)} were slower: {told}."
    return f"Whether {counted_devices(count)} are faster the noise leaves open: {told}."


def about_division(devices: int, batch_size: int) -> str:
    """Say how the accuracy is computed."""
    if devices == 1:
        return f"The device classifies {batch_size} images at a time and counts those that are right."
    return (
        f"Each of {devices} devices holds the whole network, classifies {batch_size} images of every "
        f"{devices * batch_size:,} and counts those that are right; then {devices} counts are added up, and nothing "
        "else is exchanged."
    )


def what_would_change(backend: Backend, speedup: Interval, watch: MachineWatch | None, batch_size: int) -> str:
    """Say what would make more devices faster; nothing changes the count."""
    if len(backend.devices) == 1:
        return "More devices (--devices 2), each with a core of its own: they change the speed, and not the count."
    if backend.engine == "sync":
        return with_queue(backend, "devices should classify at the same time, and count as many images")
    if watch is not None and not watch.allows_verdict:
        return "A quiet machine, for the speed: measure again when the other work has ended."
    if decide(speedup, 1.0) is None:
        return LESS_NOISE
    return more_cores(backend) or (
        f"Larger shards (--batch-size {2 * batch_size}), which take fewer launches: they change the speed, and not the "
        "count."
    )


def about_network(checkpoint: Checkpoint | None, steps: int, wanted: int) -> str:
    """Say where the network came from."""
    if checkpoint is not None:
        return f"The network is that of a checkpoint, {origin(checkpoint)}."
    if steps < wanted:
        return f"The network was trained for {steps} steps first: the budget ended it before {wanted} (--budget)."
    return f"The network was trained for {steps} steps first; --checkpoint DIR takes one that was trained for longer."


def origin(checkpoint: Checkpoint) -> str:
    """Write how far a checkpoint's training was, and who wrote it."""
    state = checkpoint.state
    return f"after {len(state.progress.losses):,} steps, written by {state.written.backend} {state.written.version}"
