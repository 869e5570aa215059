"""Exchanges over gloo: from launch to completion, and no computation in what waits for them."""

from backends.profiling.chrome_trace import read_trace
from backends.profiling.slices import Slice
from backends.torch.kineto_host import exchanges, without_exchanges
from tests.parallel_core.own_program.recorded_programs import TRACES

CALLING, GLOO, OTHER_GLOO = 1, 2, 3


def operator(name: str, start: int, end: int) -> Slice:
    return Slice(name, "cpu_op", 0, CALLING, start, end)


def mark(name: str, start: int, end: int, thread: int = GLOO) -> Slice:
    return Slice(name, "user_annotation", 0, thread, start, end)


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
    marks = [mark("gloo:all_reduce", 0, 20), mark("gloo:all_reduce", 30, 40, OTHER_GLOO)]
    launch = operator("c10d::allreduce_", 10, 11)
    assert [one.launch for one in exchanges(marks, [launch, *marks])] == [None, launch]


def test_exchanges_that_overlap_on_a_thread_have_queues_of_their_own() -> None:
    marks = [mark("gloo:send", 0, 20), mark("gloo:send", 10, 30), mark("gloo:send", 25, 40)]
    assert [one.span.queue for one in exchanges(marks, marks)] == ["gloo", "gloo 2", "gloo"]


def test_what_launches_an_exchange_or_waits_for_it_is_no_computation() -> None:
    marks = [mark("gloo:all_reduce", 12, 30)]
    work = [operator("aten::mm", 0, 10), operator("c10d::allreduce_", 10, 11), operator("aten::add", 14, 20)]
    work.append(operator("_c10d_functional::wait_tensor", 20, 30))
    found = exchanges(marks, [*work, *marks])
    assert without_exchanges(work, found) == [work[0], work[2]]
    assert without_exchanges(work, []) is work


def test_an_operator_that_outlasts_an_exchange_of_its_own_has_waited_for_it() -> None:
    """A custom autograd function that sums over the processes while it runs."""
    outer = operator("SumOverProcesses", 0, 50)
    launch, marks = operator("c10d::allreduce_", 10, 11), [mark("gloo:all_reduce", 12, 30)]
    found = exchanges(marks, [outer, launch, *marks])
    assert [(one.start, one.end) for one in without_exchanges([outer], found)] == [(0, 12), (30, 50)]


def test_an_operator_that_ends_before_its_exchange_computes_on() -> None:
    outer = operator("LaunchAndMultiply", 0, 20)
    launch, marks = operator("c10d::allreduce_", 10, 11), [mark("gloo:all_reduce", 12, 30)]
    assert without_exchanges([outer], exchanges(marks, [outer, launch, *marks])) == [outer]


def test_what_keeps_a_gradient_computes_until_it_launches_the_exchange() -> None:
    """Its thread may be put off the core just then, by the very exchange."""
    keeping = operator("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 0, 25)
    launch, marks = operator("c10d::allreduce_", 10, 11), [mark("gloo:all_reduce", 12, 30)]
    assert without_exchanges([keeping], exchanges(marks, [keeping, launch, *marks])) == [keeping._replace(end=10)]
