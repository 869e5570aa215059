"""`parallel-core trace`: any profiler's file as figures and as a picture; one line for any other
file.
"""

import gzip
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome

from backends.profiling import HOST_DEVICE, Span, Timeline, Window
from parallel_core.command_line import cli
from parallel_core.own_program.answer import answer
from parallel_core.own_program.step_figures import step_figures
from parallel_core.system.errors import RequestError
from parallel_core.trace_analysis.trace_files import pack_trace, write_trace_file
from tests.parallel_core.own_program.recorded_programs import RECORDED_STEPS, TRACES, recorded
from tests.parallel_core.trace_analysis.test_ranks import GPUS, PROCESSES
from tests.parallel_core.trace_analysis.traces import FOLDER

OURS = Timeline(
    "torch 2.13.0, async engine",
    (
        Span("launch matmul", "host", HOST_DEVICE, "Python", 0, 100),
        Span("matmul", "compute", "cpu:1", "compute", 100, 900, 0, "aten::mm"),
        Span("copy", "copy", "cpu:1", "copy", 500, 1000, 0, "aten::copy_"),
    ),
    (Window("run and copy", 0, 1000),),
    ("The profiler of this test is a person.",),
)


def shown(*arguments: str | Path) -> Outcome:
    """Run the command in this process."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["trace", *map(str, arguments)])


def figures(*arguments: str | Path) -> Any:
    """Run the command and return the figures that it writes."""
    done = shown(*arguments, "--json", "-")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_ours_becomes_figures_and_a_picture(tmp_path: Path, name: str) -> None:
    path, picture = tmp_path / name, tmp_path / "picture [bold].SVG"
    write_trace_file(OURS, path)
    done = shown(path, "--timeline", picture)
    assert (done.exit_code, done.stderr) == (0, "")
    for text in (
        "torch 2.13.0, async engine: 3 spans",
        "compute",
        "copy",
        *OURS.notes,
        str(picture),
    ):
        assert text in done.stdout
    assert "<svg" in picture.read_text()
    # 1 μs by the trace, of a case that takes half as long.
    write_trace_file(replace(OURS, timed={"run and copy": 0.5e-6}), path)
    done = shown(path, "--timeline", picture, "--json", "-")
    (case,) = json.loads(done.stdout)["cases"]
    assert (case["slowdown"], case["hidden_share"]) == (2, pytest.approx(0.8))
    warning = "slowed down by the profiler: 2.0 × the time"
    assert warning in done.stderr
    assert warning in picture.read_text()


@pytest.mark.parametrize(
    "whole", [RECORDED_STEPS, RECORDED_STEPS - 1], ids=["at its end", "in a step"]
)
def test_trace_and_profile_give_one_figure_wherever_the_recording_ended(
    tmp_path: Path, whole: int
) -> None:
    path, plain = tmp_path / "trace.json.gz", tmp_path / "plain"
    plain.write_bytes(b"\n" + gzip.decompress((TRACES / "ddp-buckets.json.gz").read_bytes()))
    pack_trace(plain, path, whole)
    document = figures(path)
    (case,) = document["cases"]
    by_profile = step_figures(recorded("ddp-buckets"), whole)
    assert case["steps"]["account"] == asdict(answer([by_profile]))["step"]
    hidden, exchanged = (
        case["parts"][name] for name in ("hidden_exchange_seconds", "exchange_seconds")
    )
    assert exchanged == pytest.approx(by_profile.exchange_seconds * whole)
    assert hidden / exchanged == pytest.approx(by_profile.hidden_exchange_share)
    # The shares are of the recording here, and of the median step there.
    queues = [one["queue"] for one in case["queues"] if one["device"] != HOST_DEVICE]
    assert queues == [one.queue for one in by_profile.queues]
    assert document["interference"] == []


def test_a_file_that_was_cut_off_is_shown_with_a_note_and_one_that_is_no_trace_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.json"
    write_trace_file(OURS, path)
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b'"copy","cat"')])
    done = shown(path)
    assert done.exit_code == 0
    assert "2 spans" in done.stdout
    assert "it was cut off" in done.stdout
    path.write_text("[]")
    refused = shown(*sorted(PROCESSES.iterdir()), path)
    assert isinstance(refused.exception, RequestError)
    assert str(refused.exception).startswith(f"{path} cannot be used")


def test_several_files_are_ranks_with_one_table_and_each_as_if_alone_in_json(
    tmp_path: Path,
) -> None:
    path, picture = tmp_path / "figures.json", tmp_path / "picture.svg"
    files = sorted(PROCESSES.iterdir())
    done = shown(*files, "--json", path, "--timeline", picture)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2 ranks" in done.stdout
    assert "straggler: rank 1" in done.stdout
    assert "rank 1 cpu" in picture.read_text()
    document = json.loads(path.read_text())
    assert document["ranks"][1] == {"rank": 1, "file": str(files[1]), **figures(files[1])}
    assert document["summary"]["straggler"] == 1
    assert [one["rank"] for one in document["summary"]["by_rank"]] == [0, 1]
    assert document["summary"]["spread"]["waited_seconds"]["most_rank"] == 0


def test_a_folder_stands_for_the_traces_in_it() -> None:
    assert figures(GPUS) == figures(*sorted(GPUS.iterdir(), reverse=True))


def test_kernels_that_a_regular_expression_names_communicate_too() -> None:
    file = GPUS / "rank-0.json.gz"
    (before,), (after,) = (
        figures(file, *more)["cases"]
        for more in ((), ("--communication", "embedding|elementwise_kernel"))
    )
    assert after["communication_seconds"] > before["communication_seconds"]
    assert after["compute_seconds"] < before["compute_seconds"]


def test_operations_that_no_launch_is_linked_to_are_counted_and_said() -> None:
    done = shown(GPUS.parent / "one_gpu" / "h100_launched_before.json.gz", "--json", "-")
    assert "60 of 120 operations on devices were launched before the recording began" in " ".join(
        done.stderr.split()
    )
    assert json.loads(done.stdout)["unlinked_operations"] == 60


def test_one_step_of_all_ranks_is_shown_or_the_file_without_it_named() -> None:
    every, one = (figures(GPUS, *more)["summary"] for more in ((), ("--step", "551")))
    assert 0 < one["matched_collectives"] < every["matched_collectives"]
    assert all(
        a["seconds"] < b["seconds"] for a, b in zip(one["by_rank"], every["by_rank"], strict=True)
    )
    refused = shown(GPUS, "--step", "3")
    assert isinstance(refused.exception, RequestError)
    assert "rank-0.json.gz cannot be cut: it has no step 3, but 551 to 552" in str(
        refused.exception
    )


# As Holistic Trace Analysis has it, of whole microseconds; and with 30 nanoseconds.
@pytest.mark.parametrize(
    ("more", "waits"), [((), (104e-6, 0)), (("--kernel-delay", "30"), (0, 104e-6))]
)
def test_what_counts_as_the_device_s_own_delay_can_be_told(
    more: tuple[str, ...], waits: tuple[float, float]
) -> None:
    first = figures(FOLDER / "two_streams.json.gz", *more)["cases"][0]["idleness"][0]
    assert (first["kernel_wait_seconds"], first["other_wait_seconds"]) == waits
