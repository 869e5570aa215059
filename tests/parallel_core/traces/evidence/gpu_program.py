"""A model of a host and a GPU's streams, which writes the trace that PyTorch's profiler would.

Times are in microseconds. A stream runs in order what is launched on it, from when the host has
launched it, and from when it may: it waits for other streams where the program lets it.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAIN, AUTOGRAD = 1, 2
COMPUTING, SIDE, NCCL = 7, 13, 20
LAUNCHING = 6.0

STEPS = 5
"""The steps of a program."""


class GpuProgram:
    """A program that trains, call by call."""

    def __init__(self, host: float = 10.0) -> None:
        self.now = 0.0
        self.host = host
        """How long an operator takes the host."""
        self.thread = MAIN
        self.free: dict[int, float] = defaultdict(float)
        """When each stream is done with what was launched on it."""
        self.events: list[dict[str, Any]] = []
        self.steps = 0

    def write(self, path: Path) -> Path:
        """Write the trace."""
        document = {"schemaVersion": 1, "traceEvents": self.events}
        path.write_text(json.dumps(document))
        return path

    def python(self, time: float) -> None:
        """Let the host do something that is not recorded."""
        self.now += time

    @contextmanager
    def marked(self, name: str) -> Iterator[None]:
        """Annotate what the host does in a `with` block."""
        start = self.now
        yield
        self._add("user_annotation", name, start, self.now)
        self.now += 1

    @contextmanager
    def step(self) -> Iterator[None]:
        """Mark a step."""
        with self.marked(f"ProfilerStep#{self.steps}"):
            yield
        self.steps += 1

    def optimizer(self, kernels: int = 2, time: float = 50.0) -> None:
        """Update the weights."""
        with self.marked("Optimizer.step#SGD.step"):
            for _ in range(kernels):
                self.compute("aten::_foreach_add_", time)

    @contextmanager
    def operator(self, name: str) -> Iterator[None]:
        """Record an operator around what it launches."""
        start = self.now
        self.now += self.host / 2
        yield
        self.now += self.host / 2
        self._add("cpu_op", name, start, self.now)

    def compute(self, name: str, time: float, stream: int = COMPUTING) -> None:
        """Launch a kernel that computes."""
        with self.operator(name):
            self._launch("cudaLaunchKernel", "kernel", f"{name[6:]}_kernel", time, stream)

    def copy(
        self,
        time: float,
        stream: int = COMPUTING,
        memory: str = "HtoD (Pinned -> Device)",
        blocking: bool = False,
    ) -> None:
        """Launch a copy between the host and the device; a blocking one is waited for."""
        with self.operator("aten::copy_"):
            name = f"Memcpy {memory}"
            call = self._launch("cudaMemcpyAsync", "gpu_memcpy", name, time, stream)
            if "Pageable" in memory:
                # The call itself returns when all is copied.
                call["dur"] = self.free[stream] + 2 - call["ts"]
                self.now = self.free[stream] + 2
            if blocking:
                self.synchronize("cudaStreamSynchronize", stream)

    def exchange(
        self, time: float, name: str = "AllReduce", stream: int = NCCL, **said: object
    ) -> None:
        """Launch an exchange of what the computing stream has computed, with what NCCL says of
        it.
        """
        with self.operator(f"c10d::{name.lower()}_"):
            self.let_wait(stream, COMPUTING)
            kernel = f"ncclDevKernel_{name}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            self._launch("cudaLaunchKernelExC", "kernel", kernel, time, stream, **said)

    def let_wait(self, stream: int, other: int) -> None:
        """Let a stream wait for what was launched on another one."""
        self._call("cudaStreamWaitEvent", 1)
        self.free[stream] = max(self.free[stream], self.free[other])

    def synchronize(self, call: str = "cudaDeviceSynchronize", *streams: int) -> None:
        """Let the host wait for some streams, or for all."""
        start = self.now
        done = max((self.free[stream] for stream in streams or tuple(self.free)), default=0.0)
        self.now = max(self.now + 2, done + 3)
        self._call(call, self.now - start, start)

    def item(self) -> None:
        """Let the host read a number that the computing stream computes."""
        with self.operator("aten::item"):
            self._launch(
                "cudaMemcpyAsync", "gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 1, COMPUTING
            )
            self.synchronize("cudaStreamSynchronize", COMPUTING)

    def forward(self, layers: int = 6, time: float = 200.0) -> None:
        """Launch a forward pass."""
        for _ in range(layers):
            self.compute("aten::addmm", time)

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Run a backward pass in a `with` block, on the thread of autograd."""
        self.compute("aten::ones_like", 2)
        self.thread = AUTOGRAD
        yield
        self.thread = MAIN

    def layer_backward(self, time: float = 400.0) -> None:
        """Launch a layer's part of the backward pass."""
        with self.operator("autograd::engine::evaluate_function: AddmmBackward0"):
            self._launch("cudaLaunchKernel", "kernel", "gemm_backward", time, COMPUTING)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a gradient; in the `with` block a program's hooks run."""
        with self.operator("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"):
            yield

    def _launch(
        self, call: str, category: str, name: str, time: float, stream: int, **said: object
    ) -> dict[str, Any]:
        number = len(self.events)
        launched = self._call(call, LAUNCHING, correlation=number)
        start = max(launched["ts"] + LAUNCHING + 2, self.free[stream] + 1)
        self.free[stream] = start + time
        args = {"device": 0, "stream": stream, "correlation": number, **said}
        self._add(category, name, start, start + time, pid=0, tid=stream, args=args)
        return launched

    def _call(
        self, name: str, time: float, start: float | None = None, **args: Any
    ) -> dict[str, Any]:
        begun = self.now if start is None else start
        self.now = begun + time
        return self._add("cuda_runtime", name, begun, self.now, args=args)

    def _add(
        self, category: str, name: str, start: float, end: float, **more: Any
    ) -> dict[str, Any]:
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 100,
            "tid": self.thread,
            "ts": round(start, 3),
            "dur": round(end - start, 3),
            "args": {},
            **more,
        }
        self.events.append(event)
        return event


def train(program: GpuProgram, layers: int = 6, time: float = 200.0) -> None:
    """Run the passes of a step without exchanges."""
    program.forward(layers, time)
    with program.backward():
        for _ in range(layers):
            program.layer_backward(2 * time)
            with program.kept():
                pass
