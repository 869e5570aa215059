"""What must be known before a trace is trusted: waits for nothing, captures, queues in disorder,
exchanges of unknown names.
"""

from pathlib import Path

import pytest

from backends.profiling import Span, Timeline
from backends.profiling.collectives import is_communication
from parallel_core.traces.ranks.reading import RankTrace
from parallel_core.traces.trust import doubts_about
from tests.parallel_core.traces.made_up_trace import MadeUpTrace
from tests.parallel_core.traces.stored import INCOMPLETE, figures_of, rank_of

MS = 1_000_000
GEMM = "sm90_xmma_gemm_bf16"
NOTHING, DISORDER, HINT = "waits-for-nothing", "queue-out-of-order", "unknown-names"


def sentences_of(rank: RankTrace) -> dict[str, str]:
    """Return the sentences of a trace's doubts by their codes."""
    return {doubt.code: doubt.sentence for doubt in rank.doubts}


@pytest.mark.parametrize(
    ("name", "waited"),
    [("graph_kernels_missing", "27.0 ms"), ("blocking_copy_waits", "184 ms")],
)
def test_a_host_that_waits_for_a_device_on_which_nothing_runs(name: str, waited: str) -> None:
    assert waited in sentences_of(rank_of(INCOMPLETE / f"{name}.json"))[NOTHING]


@pytest.mark.parametrize(
    ("length", "busy", "captured", "is_told"),
    [
        (5000, 100, False, True),
        (5000, 3000, False, False),
        (5000, 100, True, False),
        (900, 100, False, False),
    ],
    ids=["for nothing", "for work", "in a capture", "short"],
)
def test_a_wait_for_most_of_which_nothing_is_recorded(
    length: int, busy: int, captured: bool, is_told: bool, tmp_path: Path
) -> None:
    trace = MadeUpTrace()
    trace.kernel(GEMM, 100, busy)
    if captured:
        trace.call("cudaStreamBeginCapture", 85)
    trace.call("cudaDeviceSynchronize", 100, length)
    if captured:
        trace.call("cudaStreamEndCapture", 100 + length)
    assert (NOTHING in sentences_of(trace.read(tmp_path))) == is_told


def test_what_a_graph_captures_lacks_nothing() -> None:
    rank = rank_of(INCOMPLETE / "capture_then_replay.json")
    assert rank.doubts == ()
    (figures,) = rank.figures
    # Three replays of twenty kernels.
    assert sum(row.operations for row in figures.operations) == 60


@pytest.mark.parametrize("end", ["Begin", "End"])
def test_a_capture_may_reach_beyond_the_recording(end: str, tmp_path: Path) -> None:
    trace = MadeUpTrace()
    trace.operator("aten::mm", 150, 80)
    trace.call(f"hipStream{end}Capture", 100 if end == "Begin" else 300)
    trace.call("hipLaunchKernel", 200)
    assert trace.read(tmp_path).doubts == ()


@pytest.mark.parametrize(
    ("launch", "category", "said"),
    [
        ("cudaGraphLaunch", "cuda", True),
        ("hipGraphLaunch", "cuda", True),
        ("cuLaunchKernelEx", "cuda", True),
        ("cudaLaunchCooperativeKernel", "cuda", True),
        ("urEnqueueKernelLaunch", "xpu", True),
        ("zeCommandListAppendLaunchKernel", "xpu", True),
        ("cudaEventRecord", "cuda", False),
    ],
)
def test_launches_without_operations_are_told_though_copies_are_there(
    launch: str, category: str, said: bool, tmp_path: Path
) -> None:
    trace = MadeUpTrace()
    copy = trace.call("copy it", 5, category=category)
    trace.kernel("Memcpy M2D", 10, 5, copy, "gpu_memcpy")
    for number in range(5):
        trace.call(launch, 100 + 10 * number, category=category)
    assert ("device-unrecorded" in sentences_of(trace.read(tmp_path))) == said


def test_a_graph_whose_operations_have_other_numbers_lacks_nothing(tmp_path: Path) -> None:
    trace = MadeUpTrace()
    trace.call("hipGraphLaunch", 100)
    trace.kernel(GEMM, 200, 50, number=77)
    assert list(sentences_of(trace.read(tmp_path))) == ["unlinked"]


def test_what_profile_says_rests_on_what_the_host_waited_for() -> None:
    figures = figures_of(INCOMPLETE / "blocking_copy_waits.json")
    # 46 of 50 ms in each of four steps.
    assert figures.unseen_share == pytest.approx(0.92, abs=0.005)


def test_one_queue_runs_in_order() -> None:
    (doubt,) = rank_of(INCOMPLETE / "same_stream_overlap.json").doubts
    assert doubt.code == DISORDER
    assert "19 of 20 operations on gpu:0 stream 7" in doubt.sentence


@pytest.mark.parametrize(
    ("early", "one_launch", "said"),
    [(400, False, "not right"), (400, True, "a graph's branches"), (4, False, "")],
    ids=["disorder", "a graph", "programmatic launches"],
)
def test_a_graph_s_branches_and_early_starts_are_told_from_disorder(
    early: int, one_launch: bool, said: str, tmp_path: Path
) -> None:
    trace = MadeUpTrace()
    graph = trace.call("cudaGraphLaunch", 5)
    for number in range(9):
        start = 100 + number * (1000 - early)
        trace.kernel(GEMM, start, 1000, graph if one_launch else None)
    doubts = sentences_of(trace.read(tmp_path))
    assert list(doubts) == [DISORDER] * bool(said)
    assert said in doubts.get(DISORDER, "")


def test_a_stream_of_jax_runs_in_order_too() -> None:
    lanes = ("stream 13", "stream 13 (2)")
    spans = [
        Span("fusion", "compute", "gpu:0", lane, MS * number, 2 * MS + MS * number)
        for number, lane in enumerate(lanes)
    ]
    assert [doubt.code for doubt in doubts_about(Timeline("jax", spans))] == [DISORDER]


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::intranode::dispatch<8, 768>(int4*, float*)",
        "_ZN7deep_ep9internode7combineILi4EEEvPv",
        "void kuserbuffers_pushsendrecv(int, int)",
        "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<4>(int)",
        "nvshmemi_transfer_rma_put",
        "mori::moe::EpDispatchIntraNodeKernel<int>(int)",
        "oneccl_bindings_for_pytorch::allreduce",
    ],
)
def test_libraries_of_exchange_are_known_by_name(name: str) -> None:
    assert is_communication(name)


def test_a_layout_is_computed() -> None:
    assert not is_communication("void deep_ep::layout::get_dispatch_layout<256>(long const*)")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Memcpy PtoP (Device -> Device)", "exchange"), ("Memcpy DtoH (Device -> Pinned)", "copy")],
)
def test_a_copy_from_gpu_to_gpu_is_an_exchange(name: str, kind: str, tmp_path: Path) -> None:
    trace = MadeUpTrace()
    trace.kernel(name, 100, 50, category="gpu_memcpy")
    assert [row.kind for row in trace.figures(tmp_path).operations] == [kind]


@pytest.mark.parametrize(
    ("name", "length", "is_told"),
    [
        ("void ring_push_tokens(int*)", 200, True),
        ("void ring_push_tokens(int*)", 20, False),
        ("void at::native::foo(int*)", 200, False),
    ],
    ids=["much", "little", "computes"],
)
def test_an_unknown_name_gets_the_hint(
    name: str, length: int, is_told: bool, tmp_path: Path
) -> None:
    trace = MadeUpTrace()
    trace.kernel(GEMM, 100, 1000)
    trace.kernel(name, 2000, length)
    assert list(sentences_of(trace.read(tmp_path))) == [HINT] * is_told
