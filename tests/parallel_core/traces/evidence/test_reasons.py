"""Why an exchange or a copy was not hidden: planted in programs, and named from their traces."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from backends.profiling.timeline import UNKNOWN
from parallel_core.traces.case_spans import CaseSpans, cases_of
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.ranks.jobs import of_processes
from parallel_core.traces.ranks.reading import read_ranks
from parallel_core.traces.reasons import REASONS, Unhidden, reasoned, unhidden
from parallel_core.traces.trace_files import read_timeline
from tests.parallel_core.traces.evidence.gpu_program import SIDE, GpuProgram
from tests.parallel_core.traces.evidence.planted import (
    FROM_PAGEABLE,
    PLANTED,
    RELU,
    WAIT,
    WAIT_FOR_COPY,
    Written,
    batch_longer_than_a_step,
    call,
    compute,
    each_step,
    exchange,
    from_pageable,
    last_bucket,
    one_bucket,
    same_stream,
    tensor_parallel,
    write,
)
from tests.parallel_core.traces.made_up_trace import MadeUpTrace
from tests.parallel_core.traces.stored import TRACES, case_of_trace

RECORDED = {
    "not_hidden/late_loop": "launched-after",
    "not_hidden/late_flat": "launched-after",
    "not_hidden/late_async": "launched-after",
    "not_hidden/waiting_hooks": "waited-at-once",
    "not_hidden/gathered_when_needed": "waited-at-once",
    "not_hidden/sleeping_beside": "thread-idle",
    "not_hidden/sleeping_beside_busy": "thread-idle",
    "not_hidden/counting_beside": "thread-idle",
    "not_hidden/layer_by_layer": "thread-idle",
    "not_hidden/more_to_exchange_than_to_compute": "nothing-left",
    "not_hidden/no_no_sync": "every-micro-batch",
    "not_hidden/exchanged_every_time": "every-micro-batch",
    "not_hidden/hidden": "",
    "held_out/experts": "waited-at-once",
    "held_out/tokenised": "thread-idle",
    "held_out/clipped_then_summed": "launched-after",
    "held_out/hooks_every_time": "every-micro-batch",
    "held_out/large_embedding": "nothing-left",
    "held_out/histogram_beside": "",
    "held_out/histogram_beside_idle": "",
    "held_out/local_averages": "",
    "held_out/wide_input": "nothing-left",
    "held_out/short_query_beside": "nothing-left",
    "held_out/loss_beside": "",
    "held_out/statistics_beside": "",
    "exchanging/functional_tp_rank0": "waited-at-once",
    "exchanging/fsdp2_rank0": "waited-at-once",
    "ddp": "host-behind",
}
"""By trace of gloo or NCCL the reason that was planted, or is known."""
PLANTED_ON_GPU = [(code, program) for code, programs in PLANTED.items() for program in programs]


@cache
def figures_recorded(name: str) -> CaseFigures:
    return CaseFigures(case_of_trace(name))


def case_of(program: GpuProgram, folder: Path) -> CaseSpans:
    (case,) = cases_of(read_timeline(program.write(folder / "trace.json")))
    return case


def figures_in(program: GpuProgram, folder: Path) -> CaseFigures:
    return CaseFigures(case_of(program, folder))


def codes_of(rows: Iterable[Unhidden]) -> set[str]:
    return {row.code for row in rows}


@pytest.mark.parametrize(("name", "code"), RECORDED.items())
def test_a_recorded_program_s_reason_is_named(name: str, code: str) -> None:
    assert codes_of(figures_recorded(name).unhidden) == ({code} if code else set())


@pytest.mark.parametrize(("code", "program"), PLANTED_ON_GPU)
def test_a_gpu_program_s_reason_is_named(code: str, program: Written, tmp_path: Path) -> None:
    assert codes_of(figures_in(program(), tmp_path).unhidden) == ({code} if code else set())


def test_each_reason_is_planted_in_three_programs() -> None:
    codes = {reason.code for reason in REASONS} - {"unknown", "thread-idle"}
    assert min(len(PLANTED[code]) for code in codes) >= 3


@pytest.mark.parametrize("name", [name for name, code in RECORDED.items() if code])
def test_what_was_not_hidden_is_as_long_as_the_figures_say(name: str) -> None:
    figures = figures_recorded(name)
    alone = figures.parts.exchange_seconds - figures.parts.hidden_exchange_seconds
    by_reason = sum(row.unhidden_seconds for row in figures.unhidden if row.kind == "exchange")
    assert 0.5 * alone <= by_reason <= 1.001 * alone
    for row in figures.unhidden:
        assert row.operations > 0
        assert row.unhidden_seconds <= row.seconds


def test_it_counts_operations_and_milliseconds(tmp_path: Path) -> None:
    (row,) = figures_in(tensor_parallel(), tmp_path).unhidden
    # Six of 200 us in each of five steps.
    assert (row.operations, row.steps) == (30, 5)
    assert row.unhidden_seconds == pytest.approx(30 * 200e-6)
    assert "relu" in row.sentence


@pytest.mark.parametrize(
    ("hidden", "is_exception"),
    [
        ("1101", True),
        ("11011110", True),
        ("0101", False),
        ("100", False),
        ("0000", False),
    ],
)
def test_a_quarter_of_the_steps_may_be_exceptions(
    hidden: str, is_exception: bool, tmp_path: Path
) -> None:
    """In each step an exchange is hidden, 1, or not, 0."""
    beside = {"0": (), "1": (compute(1000),)}
    steps = [(exchange(1000), *beside[step], WAIT, RELU) for step in hidden]
    assert (figures_in(write(steps), tmp_path).unhidden == ()) == is_exception


@pytest.mark.parametrize(("beside", "are_slowed"), [(1200, True), (420, False)])
def test_a_late_partner_slows_nothing_down(beside: int, are_slowed: bool, tmp_path: Path) -> None:
    steps = []
    for number in range(10):
        # In a step of each kind the partner is late by 5 ms.
        late = 5000 * (number in (0, 3))
        if number % 5 > 0:
            steps.append([exchange(late + beside), compute(300), WAIT, RELU])
        else:
            steps.append([exchange(late + 400), WAIT, RELU])
    operations = reasoned(case_of(write(steps), tmp_path))
    assert operations is not None
    codes = [REASONS[number].code for number in operations.reason_of.tolist()]
    assert [code == "slowed" for code in codes] == [
        are_slowed and number % 5 > 0 for number in range(10)
    ]


@pytest.mark.parametrize(("mark", "code"), [(True, "nothing-left"), (False, "thread-idle")])
def test_a_thread_of_a_cpu_goes_on_at_an_annotation(mark: bool, code: str, tmp_path: Path) -> None:
    program = MadeUpTrace()
    for start in program.steps(5):
        program.all_reduce(start + 100, 12_000)
        program.operator("aten::mm", start + 200, 4000)
        if mark:
            program.add("user_annotation", "Optimizer.step#SGD.step", start + 12_200, 10)
        program.operator("aten::mm", start + 16_000, 2000)
    assert [row.code for row in program.figures(tmp_path).unhidden] == [code]


@pytest.mark.parametrize(("beside", "codes"), [(6000, ["slowed"]), (2400, [])])
def test_what_takes_longer_beside_computation_of_a_cpu_is_slowed(
    beside: int, codes: list[str], tmp_path: Path
) -> None:
    # It takes 2 ms where nothing is computed, in every fifth step; elsewhere 1.9 ms of it are
    # hidden.
    program = MadeUpTrace()
    for number, start in enumerate(program.steps(10)):
        is_beside = number % 5 > 0
        length = beside if is_beside else 2000
        program.all_reduce(start + 100, length)
        if is_beside:
            program.operator("aten::sort", start + 200, min(beside, 3000))
        program.operator("aten::relu", start + 160 + length, 2000)
    assert [row.code for row in program.figures(tmp_path).unhidden] == codes


def test_a_program_that_waits_for_a_group_waits_for_each_of_it(tmp_path: Path) -> None:
    program = MadeUpTrace()
    for start in program.steps(5, 50_000):
        for place in (1, 2, 3, 4):
            program.all_reduce(start + 100 * place, 5000 * place)
        program.operator("aten::mm", start + 20_600, 2000)
    (row,) = program.figures(tmp_path).unhidden
    assert (row.code, row.operations) == ("waited-at-once", 20)
    assert "mm" not in row.remedy
    assert "async_op" not in row.remedy


def test_no_remedy_on_a_cpu_names_what_only_a_gpu_has() -> None:
    for name in RECORDED:
        if name != "ddp":
            for row in figures_recorded(name).unhidden:
                assert not re.search("CUDA|NCCL|stream|pin", row.remedy)


def test_where_nothing_computes_there_is_no_reason(tmp_path: Path) -> None:
    program = MadeUpTrace()
    for start in program.steps(5):
        program.all_reduce(start + 100, 12_000)
    assert program.figures(tmp_path).unhidden == ()


def test_a_receive_that_waits_for_another_rank_is_no_slow_transfer() -> None:
    files = sorted((TRACES / "exchanging").glob("pipe_rank*.json"))
    ranks = read_ranks(files).values()
    (row,) = of_processes(case for rank in ranks for case in rank.figures)
    assert row.code == "other-rank"
    # Of rank 1: 6.5 ms in each of six steps, of which rank 0 sends for 0.5 ms.
    assert row.unhidden_seconds / 6 == pytest.approx(6.5e-3)
    assert "at least 6.00 ms of 6.50 ms" in row.sentence
    assert not re.search("async_op|graph", row.remedy)


def test_what_runs_in_one_step_only_is_no_exception_there(tmp_path: Path) -> None:
    computing = [compute(1000), RELU]
    exchanging = [compute(1000), exchange(1000, "Broadcast"), WAIT, RELU]
    program = write([computing, computing, exchanging, computing])
    (row,) = figures_in(program, tmp_path).unhidden
    assert row.operations == 1


def test_a_remedy_names_nothing_that_the_program_has(tmp_path: Path) -> None:
    program = one_bucket()
    with program.marked("DistributedDataParallel.forward"):
        program.forward()
    (in_buckets,) = figures_in(program, tmp_path).unhidden
    (by_hand,) = figures_recorded("not_hidden/late_loop").unhidden
    assert in_buckets.code == by_hand.code == "launched-after"
    assert "DistributedDataParallel" in by_hand.remedy
    assert "DistributedDataParallel" not in in_buckets.remedy


def test_a_prefetch_from_memory_that_is_not_pinned_is_told_to_pin_it(tmp_path: Path) -> None:
    prefetch = call("copy", 3000, SIDE, FROM_PAGEABLE)
    program = each_step(prefetch, WAIT_FOR_COPY, call("forward", 4, 100))
    (row,) = figures_in(program(), tmp_path).unhidden
    assert (row.code, row.remedy.partition(" (")[0]) == ("waited-at-once", "Pin the memory")


def test_memory_that_is_not_pinned_changes_the_remedy(tmp_path: Path) -> None:
    (pageable,) = figures_in(from_pageable(), tmp_path).unhidden
    (pinned,) = figures_in(same_stream(), tmp_path).unhidden
    assert pageable.code == pinned.code == "computing-stream"
    assert pageable.remedy != pinned.remedy


def test_without_known_launches_a_reason_is_not_guessed_from_them() -> None:
    case = case_of_trace("ddp")
    unlinked = replace(case.spans, launched=np.full(len(case.spans), UNKNOWN))
    rows = unhidden(reasoned(replace(case, spans=unlinked, host_calls=None)))
    assert codes_of(rows).isdisjoint({"launched-after", "every-micro-batch", "computing-stream"})


def test_of_several_processes_the_one_that_waited_least_for_the_others_counts() -> None:
    # The exchanges of `hidden` take 1.2 ms each, those of `late_flat` 44 ms.
    waiting, late, hidden, gathering = (
        figures_recorded(f"not_hidden/{name}")
        for name in ("waiting_hooks", "late_flat", "hidden", "gathered_when_needed")
    )
    assert of_processes((waiting, late)) == of_processes((late, waiting)) == waiting.unhidden
    assert of_processes((late, hidden)) == ()
    rows = (*gathering.unhidden, *waiting.unhidden)
    longest_first = sorted(rows, key=lambda row: -row.unhidden_seconds)
    assert of_processes((gathering, waiting)) == tuple(longest_first)
    assert of_processes(()) == ()


def test_of_copies_the_reason_of_most_of_the_time_counts(tmp_path: Path) -> None:
    long = figures_in(batch_longer_than_a_step(), tmp_path)
    short = figures_in(same_stream(), tmp_path)
    assert [row.code for row in short.unhidden] != [row.code for row in long.unhidden]
    assert of_processes((short, long, short)) == of_processes((long,)) == long.unhidden


def test_what_other_work_can_account_for_needs_no_reason(tmp_path: Path) -> None:
    exchange_beside = figures_in(last_bucket(), tmp_path)
    (row,) = exchange_beside.unhidden
    assert of_processes((exchange_beside,), taken=0.1) == (row,)
    assert of_processes((exchange_beside,), taken=row.unhidden_seconds / row.seconds) == ()
    for name in ("late_flat", "no_no_sync", "exchanged_every_time"):
        figures = figures_recorded(f"not_hidden/{name}")
        assert of_processes((figures,), taken=0.9) == figures.unhidden


def test_every_exchange_of_gloo_is_linked_to_its_launch_and_computes_nothing() -> None:
    case = case_of_trace("exchanging/fsdp2_rank0")
    exchanges = case.of_kind("exchange")
    assert case.linked[exchanges].all()
    names = {case.spans.names[place] for place in case.spans.name_of[exchanges].tolist()}
    assert names == {"all_gather", "reduce_scatter"}
    # Gloo copies what it has gathered on the thread that gathers.
    computing = {case.spans.queues[place] for place in case.spans.queue_of[~exchanges].tolist()}
    assert len([queue for queue in computing if queue[0] == "cpu"]) == 1
