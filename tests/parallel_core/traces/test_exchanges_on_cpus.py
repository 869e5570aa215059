"""Exchanges between processes on CPUs: in flight until they are waited for, they compute nothing
and block nothing.
"""

from pathlib import Path

import pytest

from tests.parallel_core.traces.made_up_trace import MAIN, MadeUpTrace


def test_what_a_thread_computes_beside_its_own_send_hides_the_send(tmp_path: Path) -> None:
    trace = MadeUpTrace()
    for start in trace.steps(5):
        trace.operator("c10d::send", start + 50, 40)
        trace.add("user_annotation", "gloo:send", start + 100, 10_000, MAIN)
        trace.operator("aten::mm", start + 200, 9800)
        trace.operator("aten::relu", start + 10_200, 1000)
    figures = trace.figures(tmp_path)
    assert figures.parts.hidden_exchange_share == pytest.approx(0.98)
    assert figures.compute_seconds == pytest.approx(5 * 10.8e-3)
    assert figures.unhidden == ()


def test_an_operator_waits_only_where_nothing_inside_it_computes(tmp_path: Path) -> None:
    trace = MadeUpTrace()
    trace.operator("ExchangeAndMultiply", 0, 1000)
    trace.operator("c10d::send", 100, 20)
    trace.add("user_annotation", "gloo:send", 150, 600, MAIN)
    trace.operator("aten::mm", 200, 300)
    parts = trace.figures(tmp_path).parts
    # Up to the send, the multiplication, and behind the end of the send.
    assert parts.compute_seconds == pytest.approx((150 + 300 + 250) * 1e-6)
    assert parts.hidden_exchange_seconds == pytest.approx(300e-6)


def test_a_library_s_operator_is_its_exchange(tmp_path: Path) -> None:
    trace = MadeUpTrace()
    trace.operator("aten::mm", 0, 100)
    trace.operator("c10d::allreduce_", 100, 60)
    trace.operator("oneccl_bindings_for_pytorch::allreduce", 105, 50)
    figures = trace.figures(tmp_path)
    assert figures.parts.exchange_seconds == pytest.approx(50e-6)
    assert figures.compute_seconds == pytest.approx(100e-6)


@pytest.mark.parametrize("library", ["gloo", "mpi", "ucc"])
def test_exchanges_of_each_library_are_known(library: str, tmp_path: Path) -> None:
    trace = MadeUpTrace()
    trace.operator("aten::mm", 0, 100)
    trace.operator("c10d::allreduce_", 10, 20)
    trace.add("user_annotation", f"{library}:all_reduce", 50, 100, thread=2)
    figures = trace.figures(tmp_path)
    assert figures.parts.exchange_seconds == pytest.approx(100e-6)
    assert {row.queue for row in figures.queues} >= {library}
