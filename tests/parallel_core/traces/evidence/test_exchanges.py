"""Exchanges by kind, process group and pass: on a program whose truth is known, and on recordings
beside a calculation that shares no code with ours.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parallel_core.traces.ranks import summary_of
from parallel_core.traces.ranks.reading import RankTrace, read_ranks
from parallel_core.traces.reasons import ExchangeFigures
from parallel_core.traces.trace_files import files_of
from tests.parallel_core.traces.evidence.gpu_program import COMPUTING, NCCL, STEPS, GpuProgram
from tests.parallel_core.traces.profile.recorded_programs import TRACES as OF_PROGRAMS
from tests.parallel_core.traces.stored import TRACES, events_in, figures_of, rank_of

OF_FSDP = TRACES / "exchanging/fsdp2_rank0.json.gz"
PAIRS = (f"{OF_PROGRAMS}/ddp-rank*.json.gz", f"{TRACES}/two_processes/rank-*.json.gz")
TENSORS = {"Process Group Name": "tp", "Process Group Ranks": "[0, 1]"}
BATCHES = {"Process Group Name": "dp", "Process Group Ranks": "[0, 2]"}


def of_two_groups(gathered: float = 300.0) -> GpuProgram:
    """Gather with one group in the forward pass, and wait; sum with another group in the backward
    pass, layer by layer, and once more after it.
    """
    program = GpuProgram()
    for step in range(STEPS):
        with program.step():
            program.compute("aten::addmm", 200)
            program.exchange(gathered, "AllGather", Seq=step, **TENSORS)
            program.let_wait(COMPUTING, NCCL)
            program.forward(6, 200)
            with program.backward():
                for _ in range(4):
                    program.layer_backward(400)
                    with program.kept():
                        program.exchange(100, **BATCHES)
            program.exchange(500, **BATCHES)
            program.let_wait(COMPUTING, NCCL)
            program.optimizer()
    return program


def read(program: GpuProgram, folder: Path, rank: int = 0) -> RankTrace:
    """Return what is read of a program."""
    return rank_of(program.write(folder / f"rank-{rank}.json"))


def rows_of(trace: RankTrace) -> tuple[ExchangeFigures, ...]:
    """Return the exchanges of a program's trace."""
    return trace.figures[0].exchanges_by_pass


def test_what_a_program_exchanges_is_told_by_kind_group_and_pass(tmp_path: Path) -> None:
    rows = rows_of(read(of_two_groups(), tmp_path))
    assert [(row.kind, row.group, row.launched, row.number, row.steps) for row in rows] == [
        # The last layer's, which is kept when nothing is left to compute, and the one after it.
        ("allreduce", "dp [0, 2]", "after", 2, STEPS),
        ("allgather", "tp [0, 1]", "forward", 1, STEPS),
        ("allreduce", "dp [0, 2]", "backward", 3, STEPS),
    ]
    after, forward, backward = rows
    assert [row.seconds for row in rows] == pytest.approx([600e-6, 300e-6, 300e-6])
    assert after.hidden_share == pytest.approx(0, abs=0.02)
    assert forward.hidden_share == pytest.approx(0, abs=0.02)
    # Beside the next layer's 400 us.
    assert backward.hidden_share == pytest.approx(1)
    assert forward.unhidden is not None
    assert forward.unhidden.code == "waited-at-once"
    assert after.unhidden is not None
    assert after.unhidden.code == "launched-after"
    assert backward.unhidden is None
    assert all(row.waited_seconds is None for row in rows)


def test_rows_sum_to_the_figures_of_the_case(tmp_path: Path) -> None:
    (case,) = read(of_two_groups(), tmp_path).figures
    rows = case.exchanges_by_pass
    assert sum(row.number for row in rows) * STEPS == case.exchanges
    early = [row.number for row in rows if row.launched != "after"]
    assert sum(early) * STEPS == case.early_exchanges
    seconds = sum(row.seconds for row in rows) * STEPS
    assert seconds == pytest.approx(case.parts.exchange_seconds)
    hidden = sum(row.hidden_seconds for row in rows) * STEPS
    assert hidden == pytest.approx(case.parts.hidden_exchange_seconds, abs=1e-9)


def test_ranks_are_told_in_the_mean_with_what_they_waited(tmp_path: Path) -> None:
    traces = {
        rank: read(of_two_groups(gathered), tmp_path, rank)
        for rank, gathered in enumerate((300.0, 400.0))
    }
    rows = {row.launched: row for row in summary_of(traces).exchanges}
    assert rows["forward"].seconds == pytest.approx(350e-6)
    # One waits for 100 us, the other not at all.
    assert rows["forward"].waited_seconds == pytest.approx(50e-6)
    assert rows["forward"].number == 1
    # Of this group rank 2 is not here, so who waited is not known.
    assert rows["backward"].waited_seconds is None


def test_a_rank_that_is_not_in_a_group_does_not_count_there(tmp_path: Path) -> None:
    without = GpuProgram()
    with without.step():
        without.forward()
    traces = {0: read(of_two_groups(), tmp_path), 1: read(without, tmp_path, 1)}
    alone = [row.seconds for row in rows_of(traces[0])]
    assert [row.seconds for row in summary_of(traces).exchanges] == pytest.approx(alone)


def named(path: Path, beginning: str) -> list[dict[str, Any]]:
    """Return the events of a file whose names begin so."""
    return [event for event in events_in(path) if event["name"].startswith(beginning)]


def test_a_recording_s_exchanges_are_those_of_its_events() -> None:
    launches = [event["ts"] for event in named(OF_FSDP, "c10d::")]
    exchanges = named(OF_FSDP, "gloo:")
    backward = [event["ts"] for event in named(OF_FSDP, "autograd::engine::evaluate_function")]
    numbers: Counter[tuple[str, str]] = Counter()
    microseconds: Counter[tuple[str, str]] = Counter()
    steps = named(OF_FSDP, "ProfilerStep#")
    for step in steps:
        end = step["ts"] + step["dur"]
        of_step = [start for start in backward if step["ts"] <= start < end]
        # They run one after the other, in the order of their launches.
        for launch, exchange in zip(launches, exchanges, strict=True):
            if step["ts"] <= launch < end:
                launched = "forward" if launch < of_step[0] else "backward"
                launched = "after" if launch >= of_step[-1] else launched
                kind = exchange["name"].removeprefix("gloo:")
                numbers[kind, launched] += 1
                microseconds[kind, launched] += exchange["dur"]

    figures = figures_of(OF_FSDP)
    rows = {(row.kind, row.launched): row for row in figures.exchanges_by_pass}

    assert (figures.exchanges, figures.early_exchanges) == (60, 55)
    assert rows.keys() == numbers.keys()
    for key, row in rows.items():
        assert row.number == numbers[key] / len(steps)
        assert row.seconds * 1e6 == pytest.approx(microseconds[key] / len(steps))


@pytest.mark.parametrize("pattern", PAIRS)
def test_what_recorded_ranks_waited_is_what_their_exchanges_differ_by(pattern: str) -> None:
    paths = [Path(pattern.replace("*", rank)) for rank in "01"]
    traces = read_ranks(files_of(paths))
    durations = [[event["dur"] for event in named(path, "gloo:")] for path in paths]
    longer = sum(abs(first - second) for first, second in zip(*durations, strict=True))

    rows = summary_of(traces).exchanges

    waited = sum((row.waited_seconds or 0.0) * (row.steps or 1) for row in rows)
    # In the mean of the two.
    assert 2 * waited * 1e6 == pytest.approx(longer)
