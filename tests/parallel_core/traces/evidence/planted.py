"""GPU programs in each of which one reason is planted why an exchange or a copy is not hidden, and
programs that hide what they exchange and copy.

A program is a table: what each of its steps does, call by call. Times are in microseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller as call
from typing import Any, TypeAlias

from tests.parallel_core.traces.evidence.gpu_program import (
    COMPUTING,
    NCCL,
    SIDE,
    STEPS,
    GpuProgram,
    train,
)

Call: TypeAlias = Callable[[GpuProgram], Any]
Written: TypeAlias = Callable[[], GpuProgram]

TO_HOST = "DtoH (Device -> Pinned)"
FROM_PAGEABLE = "HtoD (Pageable -> Device)"
FORWARD, OPTIMIZER = call("forward"), call("optimizer")
WAIT = call("let_wait", COMPUTING, NCCL)
WAIT_FOR_COPY = call("let_wait", COMPUTING, SIDE)
RELU = call("compute", "aten::relu", 100)


def compute(time: float, name: str = "aten::mm") -> Call:
    """Launch a kernel that computes."""
    return call("compute", name, time)


def exchange(time: float, name: str = "AllReduce", stream: int = NCCL) -> Call:
    """Launch an exchange."""
    return call("exchange", time, name, stream)


def repeat(times: int, *calls: Call) -> Call:
    """Make some calls several times."""

    def run(program: GpuProgram) -> None:
        for _ in range(times):
            for one_call in calls:
                one_call(program)

    return run


def backward(*hooks: Sequence[Call], time: float = 400) -> Call:
    """Run a backward pass of as many layers as there are hooks, each where a gradient is kept."""

    def run(program: GpuProgram) -> None:
        with program.backward():
            for hook in hooks:
                program.layer_backward(time)
                with program.kept():
                    repeat(1, *hook)(program)

    return run


def into_a_bucket(copies: Sequence[float]) -> Written:
    """Exchange one bucket behind the copies of all gradients into it, which take some times."""
    hooks = [[compute(time, "aten::mul")] for time in copies]
    hooks[-1].append(exchange(1500))
    return each_step(FORWARD, backward(*hooks), WAIT, OPTIMIZER)


def write(
    steps: Sequence[Sequence[Call]], host: float = 10.0, before: Sequence[Call] = ()
) -> GpuProgram:
    """Return a program by what each of its steps calls, behind some first calls.

    An operator takes the host `host` microseconds.
    """
    program = GpuProgram(host=host)
    repeat(1, *before)(program)
    for calls in steps:
        with program.step():
            repeat(1, *calls)(program)
    return program


def each_step(*calls: Call, host: float = 10.0, before: Sequence[Call] = ()) -> Written:
    """Return what writes a program whose steps are all alike."""
    return partial(write, [calls] * STEPS, host, before)


def slowed_by(factor: float, move: Callable[[float], Call], wait: Call, beside: float) -> Written:
    """Move data beside computation in all but every fifth step, for longer as long as it lasts."""
    alone = [move(400), wait, RELU]
    time = 400 + beside * (1 - 1 / factor)
    together = [move(time), compute(beside), wait, RELU]
    return partial(write, [alone, *[together] * 4] * (2 * STEPS // 5))


def prefetch(time: float) -> Call:
    """Copy on a stream of its own, behind what the computing stream has done."""
    return repeat(1, call("let_wait", SIDE, COMPUTING), call("copy", time, SIDE))


two_passes = [train, exchange(900), WAIT]
same_stream = each_step(call("copy", 500), train, OPTIMIZER)
from_pageable = each_step(call("copy", 800, memory=FROM_PAGEABLE), train, OPTIMIZER)
one_bucket = each_step(FORWARD, backward(*[[]] * 5, [exchange(1500)]), WAIT, OPTIMIZER)
tensor_parallel = each_step(repeat(6, compute(300), exchange(200), WAIT, compute(30, "aten::relu")))
last_bucket = each_step(FORWARD, backward(*[[], [exchange(600)]] * 3), WAIT, OPTIMIZER)
batch_longer_than_a_step = each_step(WAIT_FOR_COPY, call("copy", 5000, SIDE), train, OPTIMIZER)

PLANTED: Mapping[str, tuple[Written, ...]] = {
    "computing-stream": (
        same_stream,
        # Activations that are kept on the host, each copied as soon as it is there.
        each_step(
            repeat(4, compute(300, "aten::addmm"), call("copy", 200, memory=TO_HOST)),
            backward(*[[]] * 4),
            OPTIMIZER,
        ),
        from_pageable,
        # NCCL on the stream that computes, as servers of models have it.
        each_step(repeat(6, compute(300), exchange(150, stream=COMPUTING))),
    ),
    "waited-at-once": (
        each_step(
            repeat(
                5,
                compute(300),
                call("let_wait", SIDE, COMPUTING),
                call("copy", 250, SIDE, TO_HOST, blocking=True),
            )
        ),
        tensor_parallel,
        # Hooks that let the backward pass wait for each gradient.
        each_step(FORWARD, backward(*[[exchange(300), WAIT]] * 6), OPTIMIZER),
        # Weights that are gathered just before their layer needs them.
        each_step(repeat(6, exchange(250, "AllGather"), WAIT, compute(300))),
    ),
    "launched-after": (
        each_step(train, repeat(6, exchange(250)), WAIT, OPTIMIZER),
        # The last gradient fills it.
        one_bucket,
        into_a_bucket([20.0] * 6),
        # A prefetch behind the line that reads the loss.
        each_step(WAIT_FOR_COPY, train, OPTIMIZER, call("item"), call("copy", 600, SIDE)),
        # Results that are copied to the host when all is done.
        each_step(
            repeat(6, compute(300)),
            call("synchronize"),
            repeat(6, call("copy", 100, SIDE, TO_HOST)),
            call("synchronize", "cudaStreamSynchronize", SIDE),
        ),
    ),
    "host-behind": (
        # Kernels that are shorter than their launches.
        each_step(
            call("forward", 8, 15),
            backward(*[[], [exchange(300)], []] * 2, [], [exchange(300)], time=30),
            WAIT,
            OPTIMIZER,
            host=150,
        ),
        # A prefetch in time, and a batch that is decoded before anything is launched.
        each_step(
            call("copy", 500, SIDE),
            call("python", 1500),
            partial(train, time=10),
            WAIT_FOR_COPY,
            OPTIMIZER,
        ),
        # Weights that are gathered ahead, while Python prepares the layer that could hide them.
        each_step(repeat(6, exchange(200, "AllGather"), call("python", 600), compute(60))),
    ),
    "nothing-left": (
        last_bucket,
        # A bucket that is nearly all a table's, whose gradient comes last.
        into_a_bucket([2.0] * 5 + [200.0]),
        each_step(
            call("forward", 6, 50), backward(*[[exchange(400)]] * 6, time=100), WAIT, OPTIMIZER
        ),
        batch_longer_than_a_step,
    ),
    "every-micro-batch": (
        each_step(
            repeat(
                4,
                call("forward", 4, 50),
                backward(*[[exchange(300)]] * 4, time=100),
                WAIT,
            ),
            OPTIMIZER,
        ),
        each_step(
            repeat(3, partial(train, layers=4, time=100), exchange(700, "ReduceScatter"), WAIT),
            OPTIMIZER,
        ),
        # Steps that are marked by the pass, two for an update.
        partial(write, [two_passes, [*two_passes, OPTIMIZER]] * STEPS),
    ),
    "slowed": (
        slowed_by(2.5, exchange, WAIT, 600),
        slowed_by(3.0, prefetch, WAIT_FOR_COPY, 500),
        slowed_by(4.0, exchange, WAIT, 400),
    ),
    "": (
        # Many small buckets.
        each_step(call("forward", 12), backward(*[[exchange(100)]] * 12), WAIT, OPTIMIZER),
        # Each batch while the one before it is computed.
        each_step(
            WAIT_FOR_COPY,
            call("copy", 900, SIDE),
            train,
            OPTIMIZER,
            before=[call("copy", 900, SIDE)],
        ),
        # The last of three backward passes only.
        each_step(train, train, FORWARD, backward(*[[exchange(60)]] * 6), WAIT, OPTIMIZER),
    ),
}
"""By reason; without one, what is hidden."""
