"""What the runtime's calls do, by their names, and what Kineto recorded of their waits."""

import json

import pytest

from backends.profiling.slices import Slice, Slices
from backends.profiling.timeline import ROLES, KnownWait, QueueWait
from backends.torch.kineto_host import host_calls

THREAD = (1, 2)


def role_of(name: str, category: str = "cuda_runtime") -> str:
    calls = host_calls(Slices.of([Slice(name, category, *THREAD, 0, 1)]), {}, ["cuda_runtime", "cuda_driver"])
    return ROLES[calls.roles[0]]


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("wait for a device", "cudaDeviceSynchronize hipDeviceSynchronize cuCtxSynchronize cudaFree hipFree"),
        (
            "wait for a queue",
            "cudaStreamSynchronize hipStreamSynchronize cuStreamSynchronize zeCommandQueueSynchronize urQueueFinish",
        ),
        ("wait for an event", "cudaEventSynchronize hipEventSynchronize zeEventHostSynchronize urEventWait"),
        ("copy", "cudaMemcpy cudaMemcpyAsync hipMemcpyWithStream hipMemcpyDtoH cuMemcpyHtoDAsync_v2 cudaMemsetAsync"),
        ("let a queue wait", "cudaStreamWaitEvent hipStreamWaitEvent"),
        ("call", "cudaLaunchKernel cudaEventQuery cudaEventRecord cudaMalloc hipModuleLaunchKernel cudaFreeHost"),
    ],
)
def test_calls_are_told_apart_by_name(role: str, names: str) -> None:
    assert {name: role_of(name) for name in names.split()} == dict.fromkeys(names.split(), role)


def test_an_operator_that_reads_a_value_is_the_wait_where_the_runtime_s_calls_are_missing() -> None:
    assert role_of("aten::_local_scalar_dense", "cpu_op") == "wait for an event"
    both = Slices.of(
        [
            Slice("aten::_local_scalar_dense", "cpu_op", *THREAD, 0, 9),
            Slice("cudaStreamSynchronize", "cuda_runtime", *THREAD, 1, 8),
        ]
    )
    assert host_calls(both, {}, ["cuda_runtime"]).roles.tolist() == [
        ROLES.index("operator"),
        ROLES.index("wait for a queue"),
    ]


def test_recorded_waits_are_tied_to_their_calls() -> None:
    def recorded(name: str, category: str, start: int, **args: object) -> Slice:
        return Slice(name, category, *THREAD, start, start + 1, json.dumps(args).encode())

    slices = Slices.of(
        [
            recorded("cudaEventRecord", "cuda_runtime", 1, correlation=1),
            recorded("cudaStreamWaitEvent", "cuda_runtime", 2, correlation=2),
            recorded("cudaStreamSynchronize", "cuda_runtime", 3, correlation=3),
            recorded("cudaEventSynchronize", "cuda_runtime", 4, correlation=4),
            recorded("cudaDeviceSynchronize", "cuda_runtime", 5, correlation=5),
            recorded("Stream Sync", "cuda_sync", 6, correlation=3, device=0, stream=7),
            recorded("Context Sync", "cuda_sync", 7, correlation=5, device=0, stream=-1),
            *(
                recorded(
                    name,
                    "cuda_sync",
                    8,
                    correlation=correlation,
                    device=0,
                    stream=stream,
                    wait_on_stream=7,
                    wait_on_cuda_event_record_corr_id=1,
                )
                for name, correlation, stream in (("Stream Wait Event", 2, 20), ("Event Sync", 4, -1))
            ),
            recorded("Stream Sync", "cuda_sync", 9, correlation=99, device=0, stream=7),
        ]
    )
    calls = host_calls(slices, {THREAD: "main"}, ["cuda_runtime"])
    assert calls.queues == ("main",)
    assert dict(calls.known_waits) == {
        2: KnownWait("gpu:0", "stream 7"),
        3: KnownWait("gpu:0", "stream 7", recorded=1),
        4: KnownWait("gpu:0"),
    }
    assert calls.queue_waits == (QueueWait(2, ("gpu:0", "stream 20"), ("gpu:0", "stream 7"), 1),)
