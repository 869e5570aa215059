"""What Kineto records of the host: calls by their names, waits, and exchanges over gloo, which compute nothing."""

import json

import pytest

from backends.profiling.chrome_trace import read_trace
from backends.profiling.slices import Slice, Slices
from backends.profiling.timeline import ROLES, KnownWait, QueueWait
from backends.torch.kineto_host import exchanges, host_calls, without_exchanges
from tests.parallel_core.own_program.recorded_programs import TRACES

THREAD = (1, 2)
GLOO = 3


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
    reads = Slice("aten::_local_scalar_dense", "cpu_op", *THREAD, 0, 9)
    assert role_of(*reads[:2]) == "wait for an event"
    both = Slices.of([reads, Slice("cudaStreamSynchronize", "cuda_runtime", *THREAD, 1, 8)])
    roles = [ROLES[role] for role in host_calls(both, {}, ["cuda_runtime"]).roles]
    assert roles == ["operator", "wait for a queue"]


def test_recorded_waits_are_tied_to_their_calls() -> None:
    calls = "EventRecord", "StreamWaitEvent", "StreamSynchronize", "EventSynchronize", "DeviceSynchronize"
    slices = [
        Slice(f"cuda{name}", "cuda_runtime", *THREAD, number, number + 1, b'{"correlation": %d}' % number)
        for number, name in enumerate(calls, 1)
    ]
    of_event = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 1}
    for kind, correlation, stream in (
        ("Stream Sync", 3, 7),
        ("Context Sync", 5, -1),
        ("Stream Wait Event", 2, 20),
        ("Event Sync", 4, -1),
        ("Stream Sync", 99, 7),
    ):
        more = of_event if "Event" in kind else {}
        args = json.dumps({"correlation": correlation, "device": 0, "stream": stream, **more}).encode()
        slices.append(Slice(kind, "cuda_sync", *THREAD, 8, 9, args))
    found = host_calls(Slices.of(slices), {THREAD: "main"}, ["cuda_runtime"])
    assert found.queues == ("main",)
    assert dict(found.known_waits) == {
        2: KnownWait("gpu:0", "stream 7"),
        3: KnownWait("gpu:0", "stream 7", recorded=1),
        4: KnownWait("gpu:0"),
    }
    assert found.queue_waits == (QueueWait(2, ("gpu:0", "stream 20"), ("gpu:0", "stream 7"), 1),)


def operator(name: str, start: int, end: int) -> Slice:
    return Slice(name, "cpu_op", *THREAD, start, end)


def mark(name: str, start: int, end: int, thread: int = GLOO) -> Slice:
    return Slice(name, "user_annotation", 1, thread, start, end)


def test_each_exchange_of_a_real_program_has_its_launch_before_it() -> None:
    slices = read_trace(TRACES / "ddp-buckets.json.gz").slices
    found = exchanges([one for one in slices if one.category == "user_annotation"], slices)
    assert len(found) == len([one for one in slices if one.name == "gloo:all_reduce"]) == 8
    assert len({launch for _, launch in found}) == 8
    for span, launch in found:
        assert launch is not None
        assert span.launched == launch.start <= span.start
    assert {span.queue for span, _ in found} == {"gloo", "gloo 2"}


def test_an_exchange_that_was_launched_before_the_recording_has_no_launch() -> None:
    marks = [mark("gloo:all_reduce", 0, 20), mark("gloo:all_reduce", 30, 40, GLOO + 1)]
    launch = operator("c10d::allreduce_", 10, 11)
    assert [one.launch for one in exchanges(marks, [launch, *marks])] == [None, launch]


def test_exchanges_that_overlap_on_a_thread_have_queues_of_their_own() -> None:
    marks = [mark("gloo:send", 0, 20), mark("gloo:send", 10, 30), mark("gloo:send", 25, 40)]
    assert [one.span.queue for one in exchanges(marks, marks)] == ["gloo", "gloo 2", "gloo"]


@pytest.mark.parametrize(
    ("name", "start", "end", "computes"),
    [
        ("_c10d_functional::wait_tensor", 20, 30, []),
        ("aten::mm", 0, 10, [(0, 10)]),
        ("aten::add", 14, 20, [(14, 20)]),
        # A custom autograd function that sums over the processes while it runs has waited for the sum.
        ("SumOverProcesses", 0, 50, [(0, 12), (30, 50)]),
        ("LaunchAndMultiply", 0, 20, [(0, 20)]),
        # The thread that keeps a gradient may be put off the core when it launches the exchange, by the very exchange.
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 0, 25, [(0, 10)]),
    ],
)
def test_what_launches_an_exchange_or_waits_for_it_computes_nothing_then(
    name: str, start: int, end: int, computes: list[tuple[int, int]]
) -> None:
    one, launch, marks = (
        operator(name, start, end),
        operator("c10d::allreduce_", 10, 11),
        [mark("gloo:all_reduce", 12, 30)],
    )
    found = exchanges(marks, [one, launch, *marks])
    expected = [one._replace(start=since, end=until) for since, until in computes]
    assert without_exchanges([launch, one], found) == expected
    assert without_exchanges([launch, one], []) == [launch, one]
