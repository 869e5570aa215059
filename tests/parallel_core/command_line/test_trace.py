"""`parallel-core trace`: any profiler's file as figures and as a picture; one line for any other
file.
"""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome

from backends.profiling import HOST_DEVICE, Doubt, Span, Timeline, Window
from parallel_core.command_line import cli
from parallel_core.command_line.profile import document_of
from parallel_core.system.errors import RequestError
from parallel_core.system.machine import MachineWatch
from parallel_core.traces.profile.analysis import analyse
from parallel_core.traces.profile.running import Recorded
from parallel_core.traces.trace_files import pack_trace, write_trace_file
from tests.parallel_core.traces.ranks.test_ranks import GPUS, PROCESSES
from tests.parallel_core.traces.stored import FOLDER

OURS = Timeline(
    "torch 2.13.0, async engine",
    (
        Span("launch matmul", "host", HOST_DEVICE, "Python", 0, 100),
        Span("matmul", "compute", "cpu:1", "compute", 100, 900, 0, "aten::mm"),
        Span("copy", "copy", "cpu:1", "copy", 500, 1000, 0, "aten::copy_"),
    ),
    (Window("run and copy", 0, 1000),),
    (Doubt("by-a-person", "The profiler of this test is a person."),),
)


IDLE = MachineWatch(1.0, 2.0, 0.0, 0.0, 0.0, None, None)


def shown(*arguments: str | Path) -> Outcome:
    """Run the command in this process."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["trace", *map(str, arguments)])


def figures(*arguments: str | Path) -> Any:
    """Run the command and return the figures that it writes."""
    done = shown(*arguments, "--json=-")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_ours_becomes_figures_and_a_picture(tmp_path: Path, name: str) -> None:
    path, picture = tmp_path / name, tmp_path / "picture [bold].SVG"
    write_trace_file(OURS, path)
    done = shown(path, "--timeline", picture)
    assert done.exit_code == 0
    assert done.stderr == ""
    source = "torch 2.13.0, async engine: 3 spans"
    for text in (source, "compute", "copy", *map(str, OURS.notes), str(picture)):
        assert text in done.stdout
    assert "<svg" in picture.read_text()


def test_a_trace_of_a_case_that_the_profiler_slowed_down_says_so(tmp_path: Path) -> None:
    path, picture = tmp_path / "trace.json.gz", tmp_path / "picture.svg"
    # 1 μs by the trace, of a case that takes half as long.
    write_trace_file(replace(OURS, timed={"run and copy": 0.5e-6}), path)
    done = shown(path, "--timeline", picture, "--json=-")
    (case,) = json.loads(done.stdout)["cases"]
    assert case["slowdown"] == 2
    assert case["hidden_share"] == pytest.approx(0.8)
    warning = "slowed down by the profiler: 2.0 × the time"
    assert warning in done.stderr
    assert warning in picture.read_text()


RECORDINGS = (
    "not_hidden/late_flat",
    "not_hidden/no_no_sync",
    "held_out/loss_beside",
    "held_out/wide_input",
    "exchanging/fsdp2_rank0",
    "linked/ddp",
    "linked/h100_qwen",
    "linked/hip_training",
    "one_gpu/h100_host_bound",
    "of_jax/two_cpus",
)


@pytest.mark.parametrize("whole_steps", [1, 2], ids=["in a step", "later"])
@pytest.mark.parametrize("name", RECORDINGS)
def test_trace_and_profile_of_one_recording_say_the_same_numbers(
    name: str, whole_steps: int, tmp_path: Path
) -> None:
    path, unpacked = tmp_path / "trace.json.gz", tmp_path / "plain"
    unpacked.write_bytes(gzip.decompress((FOLDER.parent / f"{name}.json.gz").read_bytes()))
    pack_trace(unpacked, path, whole_steps)
    process = Recorded(pid=1, framework="torch", steps_recorded=whole_steps)
    analysis = analyse({path: process})
    by_profile = document_of((), 0, [process], {path: process}, IDLE, analysis)
    by_trace = figures(path)
    (of_process,) = json.loads(json.dumps(by_profile["processes"]))
    (case,) = by_trace["cases"]
    assert of_process["figures"] == case
    assert of_process["interference"] == by_trace["interference"]
    assert json.loads(json.dumps(by_profile["answer"])) == by_trace["answer"]


def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
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
    assert done.exit_code == 0
    assert done.stderr == ""
    assert "rank 1 cpu" in picture.read_text()
    document = json.loads(path.read_text())
    alone = figures(files[1])
    # Limits are held by all ranks together.
    assert alone.pop("requirements") == document["requirements"]
    assert alone.pop("cannot_answer") == document["cannot_answer"]
    assert document["ranks"][1] == {"rank": 1, "file": str(files[1]), **alone}


def test_a_folder_stands_for_the_traces_in_it() -> None:
    assert figures(GPUS) == figures(*sorted(GPUS.iterdir(), reverse=True))


def test_kernels_that_a_regular_expression_names_communicate_too() -> None:
    file = GPUS / "rank-0.json.gz"
    (case,) = figures(file)["cases"]
    names = "embedding|elementwise_kernel"
    (case_with_names,) = figures(file, "--communication", names)["cases"]
    assert case_with_names["communication_seconds"] > case["communication_seconds"]
    assert case_with_names["compute_seconds"] < case["compute_seconds"]


def test_operations_that_no_launch_is_linked_to_are_counted_and_said() -> None:
    done = shown(GPUS.parent / "one_gpu" / "h100_launched_before.json.gz", "--json=-")
    assert "60 of 120 operations on devices were launched before" in done.stderr
    assert json.loads(done.stdout)["unlinked_operations"] == 60


def test_a_single_step_of_all_ranks_is_shown() -> None:
    all_steps = figures(GPUS)["summary"]
    single_step = figures(GPUS, "--step=551")["summary"]
    assert 0 < single_step["matched_collectives"] < all_steps["matched_collectives"]
    for of_step, of_all in zip(single_step["by_rank"], all_steps["by_rank"], strict=True):
        assert of_step["seconds"] < of_all["seconds"]


def test_a_step_that_a_file_lacks_is_refused_with_the_file_s_name() -> None:
    refused = shown(GPUS, "--step=3")
    assert isinstance(refused.exception, RequestError)
    assert "rank-0.json.gz cannot be cut: it has no step 3" in str(refused.exception)
