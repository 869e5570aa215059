"""GPU programs that hide what they exchange and copy: no reason is to be named."""

from tests.parallel_core.trace_analysis.findings.gpu_program import (
    COMPUTING,
    NCCL,
    SIDE,
    STEPS,
    GpuProgram,
    train,
)


def hidden_buckets() -> GpuProgram:
    """Exchange in many small buckets."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.forward(12)
            with program.backward():
                for _ in range(12):
                    program.layer_backward()
                    with program.kept():
                        program.exchange(100)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def prefetched() -> GpuProgram:
    """Prefetch each batch while the one before it is computed."""
    program = GpuProgram()
    program.copy(900, SIDE)
    for _ in range(STEPS):
        with program.step():
            program.let_wait(COMPUTING, SIDE)
            program.copy(900, SIDE)
            train(program)
            program.optimizer()
    return program


def last_pass_only() -> GpuProgram:
    """Exchange in the last of three backward passes, in small buckets."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            train(program)
            train(program)
            program.forward()
            with program.backward():
                for _ in range(6):
                    program.layer_backward()
                    with program.kept():
                        program.exchange(60)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program
