"""Two ranks of real jobs side by side: what is reported is what a plain computation from the files gives."""

import gzip
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.ranks import FIGURES, Ranks, summary_of
from parallel_core.trace_analysis.trace_files import begins_later, files_of, read_ranks, side_by_side

TRACES = Path(__file__).parent / "traces"
GPUS, PROCESSES = TRACES / "two_gpus", TRACES / "two_processes"


def summary(folder: Path) -> Ranks:
    return summary_of(read_ranks(files_of([folder])))


def events(folder: Path, rank: int, name: str) -> list[dict[str, Any]]:
    """Return the events of a name in the order of their start, read without any of the code under test."""
    document = json.loads(gzip.decompress((folder / f"rank-{rank}.json.gz").read_bytes()))
    named = [event for event in document["traceEvents"] if event["ph"] == "X" and event["name"].startswith(name)]
    return sorted(named, key=lambda event: event["ts"])


def check_waits(found: Ranks, pairs: Sequence[tuple[float, float]]) -> None:
    """Compare what each of two ranks waited with the differences of durations, in microseconds."""
    for rank, one in enumerate(found.by_rank):
        assert one.waited_seconds is not None
        assert one.waited_seconds * 1e6 == pytest.approx(sum(pair[rank] - min(pair) for pair in pairs))
    # The second rank waited less, so the first one waited for it.
    assert found.straggler == 1


def test_gloo_s_waits_are_the_differences_of_durations_in_order() -> None:
    first, second = (events(PROCESSES, rank, "gloo:all_reduce") for rank in (0, 1))
    pairs = [(one["dur"], other["dur"]) for one, other in zip(first, second, strict=True)]
    found = summary(PROCESSES)
    assert (found.matched_collectives, found.unmatched_collectives, found.clocks_agree) == (12, 0, True)
    check_waits(found, pairs)
    assert found.by_rank[1].arrived_last == sum(b["ts"] > a["ts"] for a, b in zip(first, second, strict=True))
    assert (found.world_size, found.notes) == (2, ())


def test_collectives_that_are_missing_in_one_trace_do_not_shift_the_others() -> None:
    first, second = (events(GPUS, rank, "ncclKernel") for rank in (0, 1))
    # The clocks are one machine's: what ends within a millisecond on both is one collective.
    pairs = [
        (one["dur"], other["dur"])
        for one, other in product(first, second)
        if abs(one["ts"] + one["dur"] - other["ts"] - other["dur"]) < 1000
    ]
    found = summary(GPUS)
    assert found.matched_collectives == len(pairs) == 5
    assert found.unmatched_collectives == len(first) + len(second) - 10
    check_waits(found, pairs)
    assert (found.clocks_agree, found.world_size) == (True, 128)
    notes = " ".join(found.notes)
    assert all(f"{count} " in notes for count in ("2 of the job's 128", "10 kernels", "3 collectives"))


def test_the_spread_of_each_figure_is_that_of_the_ranks() -> None:
    found = summary(GPUS)
    assert set(found.spread) == set(FIGURES)
    for figure, spread in found.spread.items():
        (least, least_rank), (most, most_rank) = sorted((getattr(one, figure), one.rank) for one in found.by_rank)
        assert (spread.least, spread.least_rank, spread.most, spread.most_rank) == (least, least_rank, most, most_rank)
        assert (spread.median, spread.spread) == (pytest.approx((least + most) / 2), most - least)


def test_clocks_that_differ_change_nothing_but_what_is_said_of_them(tmp_path: Path) -> None:
    for rank in (0, 1):
        document = json.loads(gzip.decompress((PROCESSES / f"rank-{rank}.json.gz").read_bytes()))
        document["baseTimeNanoseconds"] += rank * 3_600_000_000_000
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(document))
    ours, theirs = summary(PROCESSES), summary(tmp_path)
    assert [one.waited_seconds for one in theirs.by_rank] == [one.waited_seconds for one in ours.by_rank]
    assert (theirs.straggler, theirs.clocks_agree) == (ours.straggler, False)
    assert theirs.by_rank[1].clock_offset_seconds == pytest.approx(3600, abs=1)
    assert any("clocks do not agree" in note and "from durations" in note for note in theirs.notes)


def test_ranks_stand_side_by_side_as_their_clocks_say() -> None:
    ranks = read_ranks(files_of([PROCESSES]), keep_spans=True)
    together, apart = (side_by_side(ranks, clocks_agree) for clocks_agree in (True, False))
    assert len(together.spans) == len(apart.spans) == sum(one.spans for one in ranks.values())
    begins = [min(span.start for span in together.spans if span.device.startswith(f"rank {rank} ")) for rank in (0, 1)]
    first, second = (events(PROCESSES, rank, "")[0]["ts"] for rank in (0, 1))
    assert min(begins) < 50_000_000
    assert begins[1] - begins[0] == pytest.approx((second - first) * 1000, abs=50_000_000)
    assert sum(begins_later(ranks, clocks_agree=True).values()) > 0
    assert begins_later(ranks, clocks_agree=False) == {0: 0, 1: 0}


def put(folder: Path, name: str, rank: int | None) -> None:
    mm = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    job = {} if rank is None else {"distributedInfo": {"rank": rank}}
    (folder / name).write_text(json.dumps({"schemaVersion": 1, **job, "traceEvents": [mm]}))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"a.json": 1, "b.json": 0}, {0: "b.json", 1: "a.json"}),
        ({"rank-7.json": None, "rank_2.json": None}, {2: "rank_2.json", 7: "rank-7.json"}),
        ({"a.json": None, "b.json": None}, {0: "a.json", 1: "b.json"}),
    ],
    ids=["by the trace", "by the name", "by the order"],
)
def test_ranks_are_numbered(tmp_path: Path, said: dict[str, int | None], expected: dict[int, str]) -> None:
    for name, rank in said.items():
        put(tmp_path, name, rank)
    read = read_ranks(files_of([tmp_path]))
    assert {rank: one.file.name for rank, one in read.items()} == expected
    assert list(read) == sorted(read)
    found = summary_of(read)
    assert (found.straggler, found.clocks_agree, found.matched_collectives) == (None, None, 0)
    assert any("do not say their rank" in note for note in found.notes) == (None in said.values())


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"a.json": 1, "b.json": 1}, r"a.json and .*b.json are both of rank 1"),
        ({"a.json": 1, "b.json": None}, r"b.json does not say its rank"),
        ({}, "holds no trace"),
    ],
)
def test_ranks_that_are_not_known_are_refused(tmp_path: Path, said: dict[str, int | None], problem: str) -> None:
    for name, rank in said.items():
        put(tmp_path, name, rank)
    with pytest.raises(RequestError, match=problem):
        read_ranks(files_of([tmp_path]))
    if said:
        with pytest.raises(RequestError, match="named twice"):
            files_of([tmp_path, tmp_path / "a.json"])


def test_of_ranks_that_wait_alike_none_is_the_straggler(tmp_path: Path) -> None:
    for rank in (0, 1):
        document = json.loads(gzip.decompress((PROCESSES / "rank-0.json.gz").read_bytes()))
        document["distributedInfo"]["rank"] = rank
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(document))
    found = summary(tmp_path)
    assert (found.matched_collectives, found.straggler) == (12, None)
