"""What JAX's profiler writes of other programs is read, on a GPU, a TPU and on CPUs."""

import gzip
import json
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from parallel_core.system.errors import RequestError
from parallel_core.traces.cases import CaseFigures
from parallel_core.traces.ranks.reading import read_ranks
from parallel_core.traces.trace_files import files_of, read_timeline
from tests.parallel_core.traces.stored import TRACES, figures_of

OF_JAX = TRACES / "of_jax"
RECORDINGS = Path("plugins/profile")


def figures_on(folder: Path, process: str, lines: dict[str, list[dict[str, Any]]]) -> CaseFigures:
    """Return the figures of one process, which has some operations on each line."""
    name = {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": process}}
    events: list[dict[str, Any]] = [name]
    for thread, (line, operations) in enumerate(lines.items(), 1):
        row = {"pid": 3, "tid": thread}
        events.append({"ph": "M", **row, "name": "thread_name", "args": {"name": line}})
        events += [{"ph": "X", **row, **operation} for operation in operations]
    path = folder / "device.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return figures_of(path)


def operation(name: str, start: float, duration: float, **arguments: str) -> dict[str, Any]:
    return {"name": name, "ts": start, "dur": duration, "args": arguments}


def test_operations_on_cpus_are_linked_to_the_run_of_their_program() -> None:
    timeline = read_timeline(OF_JAX / "two_cpus.json.gz")
    operations = [span for span in timeline.spans if span.device != "host"]
    assert len(operations) == 100
    assert timeline.unlinked == 0
    assert {span.queue for span in timeline.spans if span.device == "host"} == {"python"}


def test_two_lines_of_a_tpu_are_work_and_the_rest_is_not(tmp_path: Path) -> None:
    figures = figures_on(
        tmp_path,
        "/device:TPU:0",
        {
            "Steps": [operation("1", 0, 100)],
            "XLA Modules": [operation("jit_step", 0, 100)],
            "XLA Ops": [
                operation("while.1", 0, 50),
                operation("fusion.1", 0, 20),
                operation("fusion.2", 30, 20),
                operation("all-reduce-start.1", 50, 1),
                operation("fusion.3", 51, 29),
                operation("all-reduce-done.1", 80, 20),
            ],
            "Async XLA Ops": [
                operation("all-reduce-start.1", 50, 50),
                operation("copy-start.4", 40, 20),
            ],
        },
    )
    assert {queue.device for queue in figures.queues} == {"tpu:0"}
    assert figures.parts.compute_seconds == pytest.approx(69e-6)
    assert figures.parts.exchange_seconds == pytest.approx(50e-6)
    assert figures.parts.hidden_exchange_share == pytest.approx(29 / 50)


def test_a_gpu_s_kernels_exchange_if_their_operation_does(tmp_path: Path) -> None:
    figures = figures_on(
        tmp_path,
        "/device:GPU:1",
        {
            "Stream #13(Compute)": [operation("fusion_1", 0, 10, hlo_op="fusion.1")],
            "Stream #20(Compute)": [
                operation("AllReduceKernelImpl", 5, 10, hlo_op="all-reduce-start.3")
            ],
            "XLA Ops": [operation("fusion.1", 0, 10)],
        },
    )
    assert figures.parts.hidden_exchange_share == pytest.approx(0.5)
    assert {queue.device for queue in figures.queues} == {"gpu:1"}


@pytest.mark.parametrize("depth", ["folder", "recording"])
def test_a_folder_stands_for_its_last_recording_once(tmp_path: Path, depth: str) -> None:
    recording = tmp_path / RECORDINGS / "2026_11_28_06_40_34"
    for folder in (recording.with_name("2026_11_27_06_40_34"), recording):
        folder.mkdir(parents=True)
        for name in ("vm.trace.json.gz", "perfetto_trace.json.gz", "vm.xplane.pb"):
            (folder / name).write_bytes(b"")
    named = tmp_path if depth == "folder" else recording
    assert files_of([named]) == [recording / "vm.trace.json.gz"]


def test_xla_s_binary_form_is_refused_with_what_to_give(tmp_path: Path) -> None:
    binary = tmp_path / RECORDINGS / "now" / "vm.xplane.pb"
    binary.parent.mkdir(parents=True)
    binary.write_bytes(b"\x0a")
    for path in (binary, tmp_path):
        with pytest.raises(RequestError, match=r"xplane\.pb .*create_perfetto_trace=True"):
            files_of([path])


def test_the_hosts_of_one_recording_are_its_ranks_in_the_order_of_their_numbers(
    tmp_path: Path,
) -> None:
    of_hosts = {
        "2026_11_28_06_30_00": ("vm-w-2", "vm-w-3"),
        "2026_11_28_06_40_34": ("vm-w-2", "vm-w-1"),
        "2026_11_28_06_40_36": ("vm-w-10",),
    }
    for recording, hosts in of_hosts.items():
        folder = tmp_path / RECORDINGS / recording
        folder.mkdir(parents=True)
        for host in hosts:
            copy(OF_JAX / "two_cpus.json.gz", folder / f"{host}.trace.json.gz")
    files = files_of([tmp_path])
    names = [file.name.partition(".")[0] for file in files]
    assert names == ["vm-w-1", "vm-w-2", "vm-w-10"]
    assert {file.parent.name for file in files} == set(sorted(of_hosts)[1:])
    assert list(read_ranks(files)) == [0, 1, 2]
