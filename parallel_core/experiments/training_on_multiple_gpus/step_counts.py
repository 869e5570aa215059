"""What is counted of a training's steps: did devices compute at the same time, and were gradients
exchanged before the backward pass was over?

A step reaches from one update to the next. Its computations take longer than a scheduler's slice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from backends.profiling import Span
from parallel_core.experiments.runner.counts import IN_PART, MOSTLY, Count
from parallel_core.experiments.runner.metrics import LOWEST, Band
from parallel_core.experiments.runner.tallies import Repetition, Tally

UPDATE = "launch sgd"
"""How the names of the calls that update a device's parameters begin."""
BACKWARD = "backward"
"""What the names of the backward pass' operations hold, unless they are compiled to one."""


@dataclass(frozen=True)
class Step:
    """The operations of the devices in a step."""

    by_device: tuple[tuple[Span, ...], ...]

    def of_kind(self, *kinds: str) -> list[list[Span]]:
        """Return each device's operations of some kinds."""
        return [[span for span in spans if span.kind in kinds] for spans in self.by_device]

    @property
    def computes_on_several_devices(self) -> bool:
        """Whether computations of two devices ran at the same time."""
        return any(_run_at_once(*pair) for pair in combinations(self.of_kind("compute"), 2))

    @property
    def backward_end(self) -> int:
        """The time when the backward pass was over on all devices; 0 if that is not known."""
        spans = [span for own in self.of_kind("compute") for span in own]
        return max((span.end for span in spans if BACKWARD in span.name), default=0)

    @property
    def exchanges_early(self) -> bool:
        """Whether a gradient was exchanged before the backward pass was over."""
        exchanges = [span for own in self.of_kind("copy", "exchange") for span in own]
        return any(span.end < self.backward_end for span in exchanges)


def steps_on_several_devices(repetition: Repetition) -> Tally:
    """Count the steps of a training in which computations of two devices ran at the same time."""
    if repetition.devices < 2:
        return Tally(0, 0)
    steps = steps_of(repetition)
    return Tally(sum(step.computes_on_several_devices for step in steps), len(steps))


def steps_with_early_exchange(repetition: Repetition) -> Tally:
    """Count the steps in which a gradient was exchanged before the backward pass was over.

    Nothing is counted where a device's step is compiled to one operation: its gradients are there
    together.
    """
    steps = steps_of(repetition)
    if repetition.devices < 2 or not all(step.backward_end for step in steps):
        return Tally(0, 0)
    return Tally(sum(step.exchanges_early for step in steps), len(steps))


def steps_of(repetition: Repetition) -> list[Step]:
    """Divide a repetition into the steps of its training; none if the updates are not seen."""
    updates = [call for call in repetition.launches if call.name.startswith(UPDATE)]
    count = len(updates) // repetition.devices
    devices = sorted({span.device for span in repetition.operations})
    # A thread that serves all devices has all their updates in a step.
    updates_in_step = len(updates) // count // len(devices) if count and devices else 0
    steps_of_devices = [
        _steps_of(
            [span for span in repetition.operations if span.device == device],
            updates,
            updates_in_step,
        )
        for device in devices
    ]
    if any(len(of_device) != count for of_device in steps_of_devices):
        return []
    return [Step(of_devices) for of_devices in zip(*steps_of_devices, strict=True)]


def _steps_of(
    operations: Sequence[Span], updates: Sequence[Span], updates_in_step: int
) -> list[tuple[Span, ...]]:
    """Divide operations into steps, each of which ends where the last of its updates begins."""
    steps: list[tuple[Span, ...]] = []
    step: list[Span] = []
    begun: list[Span] = []
    for span in operations:
        update = _update_of(span, updates)
        # An update may have several operations that are known to be its own.
        if update is not None and update not in begun:
            begun.append(update)
            if len(begun) % updates_in_step == 0:
                steps.append(tuple(step))
                step = []
        step.append(span)
    return steps


def _update_of(span: Span, updates: Sequence[Span]) -> Span | None:
    """Return the call that launched an operation, if it is known to be one of the updates."""
    if span.launched is None:
        return None
    return next((call for call in updates if call.start <= span.launched <= call.end), None)


def _run_at_once(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return any(
        span.start < other.end and other.start < span.end for span in some for other in others
    )


AT_ONCE = Count(
    "steps_on_several_devices",
    "steps had computations of two devices at the same time",
    tally=steps_on_several_devices,
    title="Steps on both at once",
    bands=(
        Band(LOWEST, "serial", "No, the devices took turns"),
        Band(IN_PART, "partly", "In some steps, the devices computed at the same time"),
        Band(MOSTLY, "parallel", "Yes, the devices computed at the same time"),
    ),
)
EARLY = Count(
    "steps_with_early_exchange",
    "steps exchanged gradients before the backward pass was over",
    tally=steps_with_early_exchange,
    bands=(
        Band(LOWEST, "after", "No, the exchange waited for the backward pass"),
        Band(IN_PART, "partly", "In some steps, gradients were exchanged during the backward pass"),
        Band(MOSTLY, "during", "Yes, gradients were exchanged during the backward pass"),
    ),
)
