"""GPU programs in each of which one reason is planted why an exchange or a copy is not hidden."""

from collections.abc import Callable, Mapping, Sequence

from tests.parallel_core.trace_analysis.findings.gpu_program import (
    COMPUTING,
    NCCL,
    SIDE,
    STEPS,
    GpuProgram,
    train,
)
from tests.parallel_core.trace_analysis.findings.hidden import (
    hidden_buckets,
    last_pass_only,
    prefetched,
)

TO_HOST = "DtoH (Device -> Pinned)"
FROM_PAGEABLE = "HtoD (Pageable -> Device)"


def same_stream() -> GpuProgram:
    """Copy each batch from pinned memory without naming a stream."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.copy(500)
            train(program)
            program.optimizer()
    return program


def activations_on_the_same_stream() -> GpuProgram:
    """Keep activations on the host, each copied as soon as it is there."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(4):
                program.compute("aten::addmm", 300)
                program.copy(200, memory=TO_HOST)
            with program.backward():
                for _ in range(4):
                    program.layer_backward()
            program.optimizer()
    return program


def pageable_batches() -> GpuProgram:
    """Copy each batch from memory that is not pinned."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.copy(800, memory=FROM_PAGEABLE)
            train(program)
            program.optimizer()
    return program


def exchange_on_the_computing_stream() -> GpuProgram:
    """Call NCCL on the stream that computes, as servers of models do."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(6):
                program.compute("aten::mm", 300)
                program.exchange(150, stream=COMPUTING)
    return program


def blocking_copy_on_the_side() -> GpuProgram:
    """Copy results on a stream of their own, and wait for each before going on."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(5):
                program.compute("aten::mm", 300)
                program.let_wait(SIDE, COMPUTING)
                program.copy(250, SIDE, TO_HOST, blocking=True)
    return program


def tensor_parallel() -> GpuProgram:
    """Sum each layer's result over the devices, which the next layer needs."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(6):
                program.compute("aten::mm", 300)
                program.exchange(200)
                program.let_wait(COMPUTING, NCCL)
                program.compute("aten::relu", 30)
    return program


def synchronous_hooks() -> GpuProgram:
    """Exchange each gradient in a hook, and let the backward pass wait for it."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.forward()
            with program.backward():
                for _ in range(6):
                    program.layer_backward()
                    with program.kept():
                        program.exchange(300)
                        program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def weights_gathered_when_needed() -> GpuProgram:
    """Gather each layer's weights just before the layer needs them."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(6):
                program.exchange(250, "AllGather")
                program.let_wait(COMPUTING, NCCL)
                program.compute("aten::mm", 300)
    return program


def exchanged_at_the_end() -> GpuProgram:
    """Exchange all gradients behind the backward pass."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            train(program)
            for _ in range(6):
                program.exchange(250)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def one_bucket() -> GpuProgram:
    """Exchange all gradients in one bucket, which the last one fills."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.forward()
            with program.backward():
                for layer in range(6):
                    program.layer_backward()
                    with program.kept():
                        if layer == 5:
                            program.exchange(1500)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def copied_into_one_bucket() -> GpuProgram:
    """Copy gradients of one size into one bucket, which the last one fills."""
    return _copied_into_a_bucket([20.0] * 6)


def large_table() -> GpuProgram:
    """Copy gradients into a bucket that is nearly all a table's, which comes last."""
    return _copied_into_a_bucket([2.0] * 5 + [200.0])


def _copied_into_a_bucket(copies: Sequence[float]) -> GpuProgram:
    """Exchange one bucket behind the copies of all gradients into it, which take some times."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.forward()
            with program.backward():
                for number, time in enumerate(copies, 1):
                    program.layer_backward()
                    with program.kept():
                        program.compute("aten::mul", time)
                        if number == len(copies):
                            program.exchange(1500)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def prefetched_behind_the_loss() -> GpuProgram:
    """Prefetch on a stream of its own, but behind the line that reads the loss."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.let_wait(COMPUTING, SIDE)
            train(program)
            program.optimizer()
            program.item()
            program.copy(600, SIDE)
    return program


def copied_back_behind_a_wait() -> GpuProgram:
    """Copy results to the host on a stream of their own when all is done."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(6):
                program.compute("aten::mm", 300)
            program.synchronize()
            for _ in range(6):
                program.copy(100, SIDE, TO_HOST)
            program.synchronize("cudaStreamSynchronize", SIDE)
    return program


def slow_host() -> GpuProgram:
    """Exchange in the backward pass, whose kernels are shorter than their launches."""
    program = GpuProgram(host=150)
    for _ in range(STEPS):
        with program.step():
            program.forward(8, 15)
            with program.backward():
                for layer in range(8):
                    program.layer_backward(30)
                    with program.kept():
                        if layer % 3 == 1:
                            program.exchange(300)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def loading_beside_a_copy() -> GpuProgram:
    """Prefetch in time, then decode the batch behind it before anything is launched."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.copy(500, SIDE)
            program.python(1500)
            train(program, time=10)
            program.let_wait(COMPUTING, SIDE)
            program.optimizer()
    return program


def python_between_layers() -> GpuProgram:
    """Gather weights ahead, while Python prepares the layer that could hide them."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(6):
                program.exchange(200, "AllGather")
                program.python(600)
                program.compute("aten::mm", 60)
    return program


def last_bucket() -> GpuProgram:
    """Exchange in buckets; the last one has the first layers' gradients."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.forward()
            with program.backward():
                for layer in range(6):
                    program.layer_backward()
                    with program.kept():
                        if layer % 2:
                            program.exchange(600)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def more_exchange_than_computation() -> GpuProgram:
    """Exchange each gradient when it is there, for longer than the pass computes."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.forward(6, 50)
            with program.backward():
                for _ in range(6):
                    program.layer_backward(100)
                    with program.kept():
                        program.exchange(400)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def batch_longer_than_a_step() -> GpuProgram:
    """Prefetch on a stream of its own, a batch that takes longer than the step before it."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.let_wait(COMPUTING, SIDE)
            program.copy(5000, SIDE)
            train(program)
            program.optimizer()
    return program


def no_no_sync() -> GpuProgram:
    """Exchange in each of four backward passes for one update."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(4):
                program.forward(4, 50)
                with program.backward():
                    for _ in range(4):
                        program.layer_backward(100)
                        with program.kept():
                            program.exchange(300)
                program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def scattered_every_time() -> GpuProgram:
    """Reduce and scatter the gradients behind each of three backward passes."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            for _ in range(3):
                train(program, 4, 100)
                program.exchange(700, "ReduceScatter")
                program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def two_passes_for_an_update() -> GpuProgram:
    """Exchange in one bucket behind both passes; the steps are marked by the pass."""
    program = GpuProgram()
    for number in range(2 * STEPS):
        with program.step():
            train(program)
            program.exchange(900)
            program.let_wait(COMPUTING, NCCL)
            if number % 2:
                program.optimizer()
    return program


def slowed_by(factor: float, exchange: bool, beside: float) -> GpuProgram:
    """Move data beside computation in all but every fifth step, for longer as long as it lasts."""
    program = GpuProgram()
    for number in range(2 * STEPS):
        with program.step():
            is_beside = number % 5 > 0
            time = 400 + is_beside * beside * (1 - 1 / factor)
            if exchange:
                program.exchange(time)
            else:
                program.let_wait(SIDE, COMPUTING)
                program.copy(time, SIDE)
            if is_beside:
                program.compute("aten::mm", beside)
            program.let_wait(COMPUTING, NCCL if exchange else SIDE)
            program.compute("aten::relu", 100)
    return program


PLANTED: Mapping[str, tuple[Callable[[], GpuProgram], ...]] = {
    "computing-stream": (
        same_stream,
        activations_on_the_same_stream,
        pageable_batches,
        exchange_on_the_computing_stream,
    ),
    "waited-at-once": (
        blocking_copy_on_the_side,
        tensor_parallel,
        synchronous_hooks,
        weights_gathered_when_needed,
    ),
    "launched-after": (
        exchanged_at_the_end,
        one_bucket,
        copied_into_one_bucket,
        prefetched_behind_the_loss,
        copied_back_behind_a_wait,
    ),
    "host-behind": (slow_host, loading_beside_a_copy, python_between_layers),
    "nothing-left": (
        last_bucket,
        large_table,
        more_exchange_than_computation,
        batch_longer_than_a_step,
    ),
    "every-micro-batch": (no_no_sync, scattered_every_time, two_passes_for_an_update),
    "slowed": (
        lambda: slowed_by(2.5, True, 600),
        lambda: slowed_by(3.0, False, 500),
        lambda: slowed_by(4.0, True, 400),
    ),
    "": (hidden_buckets, prefetched, last_pass_only),
}
"""By reason; without one, what is hidden."""
