"""Counts of a training's steps: those in which devices computed at the same time, and those in
which gradients were exchanged before the backward pass was over.

A step reaches from one update to the next. Its computations take longer than a scheduler's slice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from backends.profiling import Span
from parallel_core.experiments.runner.counts import IN_PART, MOSTLY, Count, bands_at_once
from parallel_core.experiments.runner.metrics import LOWEST, Band
from parallel_core.experiments.runner.tallies import HALF, Repetition, Tally, share_beside

UPDATE = "launch sgd"
"""The beginning of the names of calls that update a device's parameters."""
BACKWARD = "backward"
"""A part of the names of the backward pass's operations, unless they are compiled to one."""


@dataclass(frozen=True)
class Step:
    """The operations of the devices in a step."""

    by_device: tuple[tuple[Span, ...], ...]

    @property
    def operations(self) -> list[Span]:
        """The operations of all devices."""
        operations: list[Span] = []
        for on_device in self.by_device:
            operations += on_device
        return operations

    @property
    def computes_on_several_devices(self) -> bool:
        """Whether a device computed for half of its time or longer while another one did, too."""
        computations_by_device = [_computations(on_device) for on_device in self.by_device]
        return any(
            share_beside(spans, others) >= HALF
            for spans, others in permutations(computations_by_device, 2)
        )

    @property
    def backward_end(self) -> int:
        """The time when the backward pass was over on all devices; 0 if that is not known."""
        computations = _computations(self.operations)
        return max((span.end for span in computations if BACKWARD in span.name), default=0)

    @property
    def exchanges_early(self) -> bool:
        """Whether a gradient was exchanged before the backward pass was over."""
        exchanges = [span for span in self.operations if span.kind in ("copy", "exchange")]
        backward_end = self.backward_end
        return any(exchange.end < backward_end for exchange in exchanges)


def steps_on_several_devices(repetition: Repetition) -> Tally:
    """Count the steps of a training in which computations of two devices ran at the same time."""
    if repetition.devices < 2:
        return Tally(0, 0)
    steps = steps_of(repetition)
    return Tally(sum(step.computes_on_several_devices for step in steps), len(steps))


def steps_with_early_exchange(repetition: Repetition) -> Tally:
    """Count the steps in which a gradient was exchanged before the backward pass was over.

    Nothing is counted if a device's step is compiled to one operation, which computes all gradients
    at once.
    """
    steps = steps_of(repetition)
    if repetition.devices < 2 or not all(step.backward_end for step in steps):
        return Tally(0, 0)
    return Tally(sum(step.exchanges_early for step in steps), len(steps))


def steps_of(repetition: Repetition) -> list[Step]:
    """Divide a repetition into the steps of its training; none if the updates were not recorded."""
    updates = [call for call in repetition.launches if call.name.startswith(UPDATE)]
    steps = len(updates) // repetition.devices
    devices = sorted({span.device for span in repetition.operations})
    if not steps or not devices:
        return []
    # If one thread serves all devices, it has the updates of all of them in a step.
    updates_in_step = len(updates) // steps // len(devices)
    steps_of_devices = []
    for device in devices:
        on_device = [span for span in repetition.operations if span.device == device]
        steps_of_device = _steps_of(on_device, updates, updates_in_step)
        if len(steps_of_device) != steps:
            return []
        steps_of_devices.append(steps_of_device)
    return [Step(on_devices) for on_devices in zip(*steps_of_devices, strict=True)]


def _steps_of(
    operations: Sequence[Span], updates: Sequence[Span], updates_in_step: int
) -> list[tuple[Span, ...]]:
    """Divide a device's operations into steps; a step ends when the last of its updates begins."""
    steps: list[tuple[Span, ...]] = []
    step: list[Span] = []
    begun_updates: list[Span] = []
    for span in operations:
        update = _update_of(span, updates)
        # An update may have several operations, of which the first one counts.
        if update is not None and update not in begun_updates:
            begun_updates.append(update)
            if len(begun_updates) % updates_in_step == 0:
                steps.append(tuple(step))
                step = []
        step.append(span)
    return steps


def _update_of(span: Span, updates: Sequence[Span]) -> Span | None:
    """Return the update that launched an operation; None if it is not known to be of an update."""
    if span.launched is None:
        return None
    return next((call for call in updates if call.start <= span.launched <= call.end), None)


def _computations(operations: Sequence[Span]) -> list[Span]:
    """Return those of some operations that compute."""
    return [operation for operation in operations if operation.kind == "compute"]


AT_ONCE = Count(
    "steps_on_several_devices",
    "steps had computations of two devices at the same time",
    tally=steps_on_several_devices,
    at_once=True,
    title="Steps at the same time",
    bands=bands_at_once(
        "No, the devices took turns",
        "In some steps, the devices computed at the same time, and in the others they took turns",
        "Yes, the devices computed at the same time",
    ),
)
EARLY = Count(
    "steps_with_early_exchange",
    "steps exchanged gradients before the backward pass was over",
    tally=steps_with_early_exchange,
    bands=(
        Band(LOWEST, "after", "No, the exchange waited for the backward pass"),
        Band(
            IN_PART,
            "partly",
            "In some steps, gradients were exchanged during the backward pass, and in the others "
            "after it",
        ),
        Band(MOSTLY, "during", "Yes, gradients were exchanged during the backward pass"),
    ),
)
