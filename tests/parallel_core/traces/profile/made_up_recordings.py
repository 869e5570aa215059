"""Recordings of a training on CPUs, made up from numbers; a change to the program can be planted in
them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.parallel_core.traces.made_up_trace import MadeUpTrace

STEPS = 8
BETWEEN_RECORDINGS, BETWEEN_STEPS = 0.02, 0.02
"""The standard deviations of the logarithm of a time."""
FORWARD, BACKWARD, EXCHANGE, UPDATE = 2000.0, 4000.0, 3000.0, 1000.0
"""Microseconds of each layer; the last of all layers together."""


@dataclass(frozen=True)
class Training:
    """A training whose layers' gradients are exchanged one by one."""

    layers: int = 4
    computing: float = 1.0
    """How many times as long it computes as usual; `exchanging` likewise."""
    exchanging: float = 1.0
    is_late: bool = False
    """Whether the exchanges are launched after the backward pass, and not during it."""
    waiting: float = 0.0
    """Microseconds in which nothing runs at the end of a step."""
    steps: int = STEPS

    def record(self, path: Path, seed: int, noise: float = 1.0) -> Path:
        """Write the trace of a recording, in which times vary `noise` times as much as usual."""
        generator = np.random.default_rng(seed)
        trace = MadeUpTrace()
        of_recording = generator.normal(0, noise * BETWEEN_RECORDINGS)
        now = 0.0
        for number in range(self.steps):
            factor = np.exp(of_recording + generator.normal(0, noise * BETWEEN_STEPS))
            start, now = now, self._step(trace, now + 100, float(factor))
            trace.step(number, start, now - start)
            now += 1
        return trace.write(path)

    def _step(self, trace: MadeUpTrace, now: float, factor: float) -> float:
        """Add a step whose times are multiplied; return when it ends."""
        compute, exchange = self.computing * factor, EXCHANGE * self.exchanging * factor
        for _ in range(self.layers):
            trace.operator("aten::linear", now, FORWARD * compute - 5)
            now += FORWARD * compute
        exchanged = now
        launches = []
        for _ in range(self.layers):
            name = "autograd::engine::evaluate_function: AddmmBackward0"
            trace.operator(name, now, BACKWARD * compute - 100)
            now += BACKWARD * compute
            launches.append(now - 90)
        if self.is_late:
            launches = [now + 60 * number for number in range(self.layers)]
        for launch in launches:
            begin = max(launch + 50, exchanged)
            trace.all_reduce(launch, exchange, begin)
            exchanged = begin + exchange
        now = max(now, exchanged) + self.waiting * factor
        trace.operator("Optimizer.step#SGD.step", now, UPDATE * compute)
        return now + UPDATE * compute
