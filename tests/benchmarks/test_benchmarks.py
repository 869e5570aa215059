"""What the benchmarks conclude from times: ratios, verdicts, tables; on made-up numbers, for none is measured here."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from benchmarks import allreduce, processes, run_all
from benchmarks.harness import findings, side_by_side
from benchmarks.harness.findings import Finding, Report, Target
from benchmarks.harness.side_by_side import Measured, Variant
from benchmarks.training import growth, network
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.system.subprocesses import Outcome

MACHINE = {"processor": "A", "cores": 2, "system": "Linux", "python": "3.11", "utc": "now"}


def measured(**seconds: tuple[float, ...]) -> Measured:
    return Measured(seconds, {}, {"torch": "2"})


@pytest.mark.parametrize(
    ("kind", "low", "high", "verdict"),
    [
        ("at least", 2.0, 2.2, "met"),
        ("at least", 1.9, 2.2, "undecided"),
        ("at least", 1.7, 1.9, "missed"),
        ("at most", 1.7, 2.0, "met"),
        ("at most", 1.9, 2.2, "undecided"),
        ("at most", 2.1, 2.2, "missed"),
        ("at least", float("-inf"), float("inf"), "undecided"),
    ],
)
def test_a_target_is_met_or_missed_by_the_whole_interval(kind: str, low: float, high: float, verdict: str) -> None:
    assert Target(kind, 2.0).verdict(Interval((low + high) / 2, low, high)) == verdict  # type: ignore[arg-type]


def test_pairs_are_neighbours_in_a_process_so_that_drift_falls_on_both() -> None:
    drifting = [measured(ours=(1.1 * d, 2.2 * d, 4.4 * d), plain=(d, 2 * d, 4 * d)) for d in (1.0, 1.5, 0.5)]
    ratio = side_by_side.paired(drifting, "ours", "plain")
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((1.1, 1.1, 1.1))


def test_rounds_are_paired_for_ratios_and_differences() -> None:
    ratio = side_by_side.ratio_by_round([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    difference = side_by_side.difference_by_round([3.0, 4.0, 5.0], [4.0, 5.0, 6.0])
    assert (ratio.low, ratio.high) == pytest.approx((2, 2))
    assert side_by_side.scaled(difference, 10) == Interval(-10, -10, -10)


def test_a_case_is_found_by_the_beginning_of_its_name_if_that_is_unique() -> None:
    one = Measured({"native, 4 KiB": (3.0, 1.0, 2.0), "native, 1 MB": (9.0,), "star, 1 MB": (8.0,)}, {}, {})
    assert one.median("native, 4") == 2.0
    for name in ("native", "ring"):
        with pytest.raises(KeyError, match=f"begin with '{name}'"):
            one.median(name)


def outcome(status: int = 0, timed_out: bool = False, **answer: object) -> Outcome:
    return Outcome(status, json.dumps(answer) if answer else "", "it said this\n", timed_out)


ANSWER = {"cases": [{"name": "a", "seconds": [1.0]}], "metrics": {"m": 2.0}, "versions": {"torch": "2"}, "problems": []}


def test_answers_of_workers_and_of_the_command_line_are_read() -> None:
    backend = {"name": "mxnet", "version": "1.9.1"}
    assert side_by_side.read_answer(outcome(**ANSWER), "x") == Measured({"a": (1.0,)}, {"m": 2.0}, {"torch": "2"})
    ours = outcome(**{**ANSWER, "backend": backend})
    assert side_by_side.read_answer(ours, "x").versions == {"mxnet": "1.9.1"}


@pytest.mark.parametrize(
    ("gave", "said"),
    [
        (outcome(1, **{**ANSWER, "problems": ["7 is not 8"]}), "wrong result: 7 is not 8"),
        (outcome(1), "it said this"),
        (outcome(-9, timed_out=True), "killed"),
        (Outcome(0, "no JSON", "", False), "x: "),
    ],
)
def test_a_wrong_result_and_a_failure_end_a_benchmark(gave: Outcome, said: str) -> None:
    with pytest.raises(click.ClickException, match=said):
        side_by_side.read_answer(gave, "x")


def test_rounds_are_interleaved_and_one_core_changes_with_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, set[int]]] = []

    async def supervise(command: tuple[str, ...], _: float, cores: set[int]) -> Outcome:
        ran.append((command[0], cores))
        return outcome(**ANSWER)

    monkeypatch.setattr(side_by_side, "supervise", supervise)
    monkeypatch.setattr(side_by_side, "core_numbers", lambda: [3, 5, 7])
    found = side_by_side.take_turns([Variant("A", ("a",)), Variant("B", ("b",), "one")], 2)
    assert ran == [("a", {3, 5}), ("b", {3}), ("a", {3, 5}), ("b", {5})]
    assert [len(of) for of in found.values()] == [2, 2]


REPORT = Report(
    "A title",
    [
        Finding("good", Interval(2.1, 2.05, 2.2), target=Target("at least", 2.0)),
        Finding("bad", Interval(1.3, 1.2, 1.4), target=Target("at most", 1.02)),
        Finding("rate", Interval(1234.0, float("-inf"), float("inf")), "images/s"),
    ],
    {"A": [measured(a=(1.0,))]},
    ["A note."],
)


def test_the_table_has_a_row_for_each_finding() -> None:
    lines = findings.table(REPORT, 3, MACHINE).splitlines()
    assert "| good | 2.10 (2.05–2.20) × | ≥ 2 | met |" in lines
    assert "| bad | 1.30 (1.20–1.40) × | ≤ 1.02 | missed |" in lines
    assert "| rate | 1,234 images/s |  |  |" in lines
    assert lines[-1] == "A note."
    assert "torch 2" in lines[2]


def test_a_missed_target_is_written_and_no_failure(tmp_path: Path) -> None:
    command = findings.benchmark("made-up", rounds=3)(lambda rounds, quick: REPORT)
    done = CliRunner().invoke(command, ["--out", str(tmp_path / "new")])
    assert done.exit_code == 0
    assert "1 targets met, 1 missed, 0 undecided" in done.output
    written = json.loads((tmp_path / "new" / "made-up.json").read_text())
    assert [one["verdict"] for one in written["findings"]] == ["met", "missed", None]
    assert written["findings"][2]["low"] is None
    assert written["processes"]["A"][0]["seconds"] == {"a": [1.0]}
    assert {"machine", "command", "versions", "rounds"} <= set(written)
    assert (tmp_path / "new" / "made-up.md").read_text() in done.output


def test_the_summary_counts_over_all_benchmarks_and_names_failed_ones() -> None:
    found = {"findings": [finding.as_json() for finding in REPORT.findings]}
    text = run_all.summary({"one": found, "two": None})
    assert "one: missed: bad: 1.3 ×, at most 1.02" in text
    assert "two: FAILED" in text
    assert text.endswith("1 targets met, 1 missed, 0 undecided; failed: two")


@pytest.mark.parametrize("name", [*run_all.NAMES, "training/network", "processes"])
def test_every_benchmark_has_the_shared_options(name: str) -> None:
    options = {option.name for option in importlib.import_module(f"benchmarks.{name.replace('/', '.')}").main.params}
    assert options == {"out", "rounds", "quick"}


def test_cases_of_allreduce_are_found_by_algorithm_in_the_order_of_sizes() -> None:
    one = Measured({"book, 1": (1.0,), "book, copying, 1": (2.0,), "book, 2": (3.0,)}, {}, {})
    assert allreduce.by_size([one, one], "book", {"4KiB": 1, "1MB": 2}) == {"4KiB": [1.0, 1.0], "1MB": [3.0, 3.0]}
    with pytest.raises(ValueError, match="shorter"):
        allreduce.by_size([one], "book, copying", {"4KiB": 1, "1MB": 2})


def test_targets_of_allreduce_point_the_right_way() -> None:
    names = ["torch, gloo, 2 processes", "mxnet, kvstore device", "mxnet, kvstore local"]
    names += [f"{name}, ours, {case}" for name in ("torch", "mxnet") for case in ("native", "star", "plain copy")]
    ends = ("", ", transfers that copy")
    names += ["mxnet, the book's loop"]
    names += [f"torch, the book's loop{end}{threads}" for end in ends for threads in ("", ", 2 threads")]
    seconds = {name: {"4KiB": [50e-6] * 3, "100MB": [0.1] * 3} for name in names}
    seconds["torch, ours, native"] = {"4KiB": [90e-6] * 3, "100MB": [0.01] * 3}
    seconds["torch, ours, plain copy"] = {"4KiB": [1e-6] * 3, "100MB": [0.008] * 3}
    held = {finding.name: finding for finding in allreduce.targets(seconds, "100MB") if finding.target}
    ratio = held["100MB: torch, ours, native / torch, the book's loop, transfers that copy"]
    share = held["100MB: torch, ours, native: share of the copy-bound limit"]
    slower = held["4KiB: torch, ours, native − torch, ours, star"]
    assert (ratio.interval.estimate, ratio.verdict) == (pytest.approx(10), "met")
    assert (share.interval.estimate, share.verdict) == (pytest.approx(80), "met")
    assert (slower.interval.estimate, slower.verdict) == (pytest.approx(40), "missed")
    assert held["100MB: mxnet, ours, native / mxnet, kvstore device"].verdict == "missed"


def test_growth_of_memory_is_the_slope_of_a_line() -> None:
    slope, start, off = growth.line([5.0, 8.0, 11.0, 14.0])
    assert (slope, start, off) == pytest.approx((3, 2, 0))
    assert growth.line([5.0, 8.0, 11.0, 15.0])[2] > 0.1


def test_growth_is_drawn(tmp_path: Path) -> None:
    processes = {f"{name}, queue": [measured(**{f"{d} queued": (1e-6,) for d in (1, 10)})] for name in growth.BACKENDS}
    for name in growth.BACKENDS:
        for count in growth.DEVICES:
            processes[f"{name}, {growth.devices(count)}"] = [measured(epoch=(1.0,))]
            peak = {"peak_bytes": 3.0 * count, "parameter_bytes": 1.0}
            processes[f"{name}, memory of {count}"] = [Measured({}, peak, {})]
    draw: Callable[..., None] = growth.draw_growth
    with (tmp_path / "growth.png").open("wb") as stream:
        draw(processes, (1, 10), 100, stream)
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def trained(step: float, exposed: float) -> list[Measured]:
    figures = {"step_seconds": step, "exposed_exchange_seconds": exposed, "exchange_seconds": 0.1}
    return [Measured({}, figures, {})] * 3


def test_training_over_a_link_is_told_by_the_step() -> None:
    cells = [network.Cell(name, 1, "1 Gbit/s", exchange) for name in network.BACKENDS for exchange in network.EXCHANGES]
    measured = dict(
        zip(
            [cell.name for cell in cells],
            [trained(0.4, 0.1), trained(0.32, 0.02), trained(0.2, 0), trained(2, 2)],
            strict=True,
        )
    )
    found = {finding.name: finding.interval.estimate for finding in network.of_pair("mxnet", 1, "1 Gbit/s", measured)}
    assert found == pytest.approx(
        {
            "mxnet, width 1, 1 Gbit/s: a step, during / after": 0.8,
            "mxnet, width 1, 1 Gbit/s, after": 640,
            "mxnet, width 1, 1 Gbit/s, after: a step in communication": 100,
            "mxnet, width 1, 1 Gbit/s, after: of its time": 25,
            "mxnet, width 1, 1 Gbit/s, after: the exchange by itself": 100,
            "mxnet, width 1, 1 Gbit/s, during": 800,
            "mxnet, width 1, 1 Gbit/s, during: a step in communication": 20,
            "mxnet, width 1, 1 Gbit/s, during: of its time": 6.25,
            "mxnet, width 1, 1 Gbit/s, during: the exchange by itself": 100,
        }
    )
    lines = network.table_of(1, ["1 Gbit/s"], measured).splitlines()
    assert lines[4:] == [
        "| 1 Gbit/s | after | 640 | 100 ms (25%) | 1,280 | 0 ms (0%) |",
        "| 1 Gbit/s | during | 800 | 20 ms (6%) | 128 | 2,000 ms (100%) |",
    ]
    assert {line.count("|") for line in lines[2:]} == {7}


def test_sums_between_processes_are_held_against_the_stream_of_the_same_process() -> None:
    # The machine drifts; the ratio does not.
    drifting = [measured(**{"native, 1 MB": (2e-3 * d,), "one TCP stream, 1 MB": (1e-3 * d,)}) for d in (1.0, 3.0, 2.0)]
    taken, speed, share = processes.of_engine("gloo", drifting, [10**6])
    assert (taken.interval.estimate, taken.unit) == (pytest.approx(4000), "μs")
    assert (speed.interval.estimate, speed.unit) == (pytest.approx(0.25), "GB/s")
    assert (share.interval.low, share.interval.high) == pytest.approx((50, 50))


def test_half_of_there_and_back_is_the_latency() -> None:
    cases = {
        f"stream {way}, 4096 B": (seconds,)
        for way, seconds in (("there", 1e-3), ("back", 2e-3), ("there and back", 5e-4))
    }
    latency, there, back = processes.of_stream([measured(**cases)] * 3, [4096])
    assert latency.interval.estimate == pytest.approx(250)
    assert there.interval.estimate == pytest.approx(2 * back.interval.estimate)
