"""`parallel-core profile`: real programs of PyTorch and MXNet, which know nothing of it, and what
it says of them.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.process_groups.addresses import free_port
from parallel_core.system.errors import DISTURBED, FAILED
from parallel_core.traces.profile.requirements import EARLY
from parallel_core.traces.trace_files import read_timeline
from tests.conftest import Require, RunProgram
from tests.golden.documents import PROGRAM_OF_TWO_RANKS
from tests.parallel_core.command_line.test_command_line import PROGRAM
from tests.parallel_core.traces.profile.recorded_programs import EXAMPLES, TRACES
from tests.parallel_core.traces.ranks.test_ranks import PROCESSES

Words = tuple[str, ...]
LEAVE_TRACES = (sys.executable, "-c", PROGRAM_OF_TWO_RANKS)
"""A program that leaves the traces behind that it is given, each as of a rank."""
TWO_RANKS = (PROCESSES / "rank-0.json.gz", PROCESSES / "rank-1.json.gz")


def profile(folder: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Profile a program with results in a folder."""
    written = ("--output", folder, "--json", folder / "all.json")
    command = [*PROGRAM, "profile", *written, *arguments]
    port = str(free_port("127.0.0.1"))
    # The second is torchrun's.
    ports = {"MASTER_PORT": port, "PET_MASTER_PORT": port}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **ports}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, check=False
    )


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "all.json").read_text())
    return found


def recordings(folder: Path) -> list[Path]:
    """Return the folders of the recordings, the oldest first."""
    return sorted(path for path in folder.iterdir() if path.is_dir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "profile"
    made.mkdir()
    return made


def script(folder: Path, program: str) -> Path:
    """Write a program beside the folder of its recordings."""
    path = folder.with_name("program.py")
    path.write_text(program)
    return path


STEPS_IN_THE_BACKWARD_PASS = """
import warnings
import torch
{first_line}
net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
optimizers = {{parameter: torch.optim.SGD([parameter], 0.01) for parameter in net.parameters()}}
for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(lambda own: optimizers[own].step())
for _ in range(14):
    net(torch.randn(8, 64)).square().mean().backward()
print("done")
"""


@pytest.mark.parametrize("first_line", ["warnings.simplefilter('error')", ""])
def test_nothing_that_the_profiler_warns_of_reaches_the_program(
    first_line: str, folder: Path, require: Require
) -> None:
    """An optimizer steps in the backward pass, inside an operator that is being recorded."""
    require("torch")
    program = STEPS_IN_THE_BACKWARD_PASS.format(first_line=first_line)
    done = profile(folder, "--", script(folder, program))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "A step takes" in done.stderr
    assert "Warning" not in done.stderr


WITH_A_KVSTORE = """
import sys
import mxnet as mx
from mxnet import autograd, gluon, nd
devices = [mx.cpu(0), mx.cpu(1)]
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
net.initialize(ctx=devices)
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=sys.argv[1])
for _ in range(14):
    shares = gluon.utils.split_and_load(nd.ones((32, 50)), devices)
    with autograd.record():
        losses = [net(share).mean() for share in shares]
    autograd.backward(losses)
    trainer.step(32)
    nd.waitall()
"""


@pytest.mark.parametrize("store", ["local", "device"])
def test_what_a_kvstore_sums_over_devices_is_exchanged(
    store: str, folder: Path, require: Require
) -> None:
    require("mxnet")
    done = profile(folder, "--", script(folder, WITH_A_KVSTORE), store)
    assert done.returncode == 0, done.stderr
    (process,) = document(folder)["processes"]
    gradients = 4
    assert process["figures"]["exchanges"] == 5 * gradients


@pytest.mark.parametrize("framework", ["torch", pytest.param("mxnet", marks=pytest.mark.long)])
def test_a_plain_program_is_recorded_without_a_change(
    framework: str, folder: Path, require: Require
) -> None:
    require(framework)
    program = EXAMPLES / f"plain_{framework}.py"
    done = profile(folder, "--", program)
    assert done.returncode == 0, done.stderr
    assert "A step takes" in done.stderr
    assert "bounds it" in done.stderr
    found = document(folder)
    assert found["answer"]["overlap"] == "no-exchange"
    assert found["answer"]["step"]["steps"] in (1, 5), (
        "one if the engine ran far behind the program"
    )
    assert found["load"]["cores"] > 0
    (process,) = found["processes"]
    assert (process["framework"], process["marker"]) == (framework, "optimizer")
    assert process["steps_recorded"] == 5
    (recording,) = recordings(folder)
    picture, trace = sorted(recording.iterdir())
    assert "<svg" in picture.read_text()
    assert read_timeline(trace).spans
    alone = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert done.stdout == alone.stdout


RECORDED_ITSELF = """
import json, os
from pathlib import Path

folder = Path(json.loads(os.environ["PARALLEL_CORE_PROFILE"])["folder"])
(folder / "1.report").write_text("{")
(folder / "2.json").write_text("{}")
(folder / "2.report").write_text(json.dumps({"pid": 2, "framework": "torch", "trace": "2.json"}))
for path in (folder.parents[1] / "all.json", folder.parent / "trace.json.gz"):
    path.mkdir()
raise SystemExit(7)
"""


def test_the_program_s_status_counts_whatever_cannot_be_written(folder: Path) -> None:
    limit = ("--require", "exchanges >= 1")
    done = profile(folder, *limit, "--", sys.executable, "-c", RECORDED_ITSELF)
    assert done.returncode == 7
    assert done.stderr.count("parallel-core: ") == 3, "of the steps, the trace and the figures"
    assert "Traceback" not in done.stderr


def test_each_recording_holds_only_its_own_ranks_and_the_user_s_files_stay(
    folder: Path, program: RunProgram
) -> None:
    users = {folder / name: name for name in ("timeline.svg", "rank0.json.gz", "rank7.json.gz")}
    for path, content in users.items():
        path.write_text(content)
    for traces in (TWO_RANKS, TWO_RANKS[:1]):
        done = profile(folder, "--warm-up=1", "--steps=2", "--", *LEAVE_TRACES, *traces)
        assert done.returncode == 0, done.stderr
    assert {path: path.read_text() for path in users} == users
    earlier, later = recordings(folder)
    assert {path.name for path in earlier.glob("*.gz")} == {"rank0.json.gz", "rank1.json.gz"}
    assert {path.name for path in later.glob("*.gz")} == {"rank0.json.gz"}
    assert len(json.loads(program("trace", str(earlier), "--json=-").stdout)["ranks"]) == 2
    assert "ranks" not in json.loads(program("trace", str(later), "--json=-").stdout)


def test_a_program_is_recorded_repeatedly_and_compared_with_an_earlier_recording(
    folder: Path,
) -> None:
    program = ("--", *LEAVE_TRACES, *TWO_RANKS)
    done = profile(folder, "--repeat=2", "--against", PROCESSES, *program)
    assert done.returncode == 0, done.stderr
    assert len(recordings(folder)) == 2
    changes = document(folder)["changes"]
    assert changes["before"]["number_of_recordings"] == 1
    assert changes["after"]["number_of_recordings"] == 2
    assert changes["sentence"] in " ".join(done.stderr.split())
    missing = profile(folder, "--against", folder / "none", *program)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    assert len(recordings(folder)) == 2


def test_a_recording_of_nothing_leaves_no_folder_and_limits_open(folder: Path) -> None:
    assert profile(folder, "--", "true").returncode == 0
    assert profile(folder, "--require", "exchanges >= 1", "--", "true").returncode == DISTURBED
    assert recordings(folder) == []


@pytest.mark.parametrize(("least", "status"), [(50, 0), (60, FAILED)])
def test_a_limit_decides_the_status_of_a_program_that_ends_well(
    least: int, status: int, folder: Path
) -> None:
    limit = f"{EARLY} >= {least} %"
    ranks = [TRACES / f"ddp-rank{rank}.json.gz" for rank in (0, 1)]
    done = profile(folder, "--steps=2", "--require", limit, "--", *LEAVE_TRACES, *ranks)
    assert done.returncode == status, done.stderr
    (requirement,) = document(folder)["requirements"]
    assert requirement["interval"]["estimate"] == 0.5
    assert document(folder)["status"] == 0


def steps_in_trace(folder: Path) -> int:
    """Return how many steps the trace of the only recording marks."""
    (recording,) = recordings(folder)
    annotations = read_timeline(recording / "trace.json.gz").annotations
    return sum("ProfilerStep#" in annotation.name for annotation in annotations)


UNMARKED = """
import sys
import torch
from parallel_core import profiled_step

product = torch.ones(64, 64)
for _ in range(6):
    with profiled_step():
        product = torch.tanh(product @ product)
print("done")
sys.exit(4)
"""


@pytest.mark.long
def test_marked_steps_of_a_program_that_ends_are_kept(folder: Path, require: Require) -> None:
    require("torch")
    done = profile(folder, "--warm-up=2", "--", script(folder, UNMARKED))
    assert (done.returncode, done.stdout) == (4, "done\n")
    assert "parallel-core: 4 steps of 5 recorded, then the program ended" in done.stderr
    (process,) = document(folder)["processes"]
    assert process["marker"] == "profiled_step"
    assert process["steps_seen"] == 6
    assert process["steps_recorded"] == 4
    assert steps_in_trace(folder) == 4, "the last one has not ended"


WITH_OWN_PROFILER = """
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def ready(profiler):
    steps = [event for event in profiler.events() if event.key.startswith("ProfilerStep")]
    print("steps of its own", len(steps))

own = schedule(wait=1, warmup=1, active=2, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=own, on_trace_ready=ready) as profiler:
    for _ in range(12):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        profiler.step()
"""


@pytest.mark.long
def test_a_program_that_profiles_itself_has_both_traces(folder: Path, require: Require) -> None:
    require("torch")
    program = script(folder, WITH_OWN_PROFILER)
    done = profile(folder, "--warm-up=1", "--steps=3", "--", program)
    assert (done.returncode, done.stdout) == (0, "steps of its own 2\n"), done.stderr
    (process,) = document(folder)["processes"]
    assert (process["marker"], process["steps_recorded"]) == ("profiler", 3)
    assert steps_in_trace(folder) == 3


MXNET_WITH_OWN_PROFILER = f"""
{(EXAMPLES / "plain_mxnet.py").read_text()}
import json
mx.profiler.set_config(filename="own.json", profile_imperative=True)
mx.profiler.set_state("run")
net(images)
mx.nd.waitall()
mx.profiler.set_state("stop")
mx.profiler.dump()
with open("own.json") as file:
    print("of its own", any(event["ph"] == "M" for event in json.load(file)["traceEvents"]))
"""


@pytest.mark.long
def test_a_program_that_runs_mxnet_s_profiler_afterwards_has_a_whole_file(
    folder: Path, tmp_path: Path, require: Require, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("mxnet")
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(MXNET_WITH_OWN_PROFILER)
    done = profile(folder, "--", "own.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("of its own True\n")
    assert "5 steps" in done.stderr


ANY = {"none", "some", "overlap", "inconclusive"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("launcher", "arguments", "verdicts", "buckets", "early", "status"),
    [
        ((), (), ANY, 4, 3, 0),
        ((), ("--bucket-cap-mb=1000",), {"none", "inconclusive"}, 1, 0, FAILED),
        ((), ("--no-sync",), {"no-exchange"}, 0, 0, DISTURBED),
        (("torchrun", "--nproc-per-node=2"), (), ANY, 4, 3, 0),
    ],
    ids=["buckets", "one-bucket", "no-sync", "torchrun"],
)
def test_whether_gradients_are_exchanged_under_the_backward_pass(
    launcher: Words,
    arguments: Words,
    verdicts: set[str],
    buckets: int,
    early: int,
    status: int,
    folder: Path,
    require: Require,
) -> None:
    require("torch")
    limit = ("--require", f"{EARLY} >= 75 %")
    done = profile(folder, *limit, "--", *launcher, EXAMPLES / "ddp_torch.py", *arguments)
    assert done.returncode == status, done.stderr
    # torchrun's ranks write a line and its end apart, into one pipe.
    assert sorted(re.findall(r"rank (\d) has trained", done.stdout)) == ["0", "1"]
    found = document(folder)
    assert found["answer"]["overlap"] in verdicts
    ranks = [process for process in found["processes"] if process["figures"]]
    assert [process["rank"] for process in ranks] == [0, 1]
    for process in ranks:
        figures = process["figures"]
        assert (figures["exchanges"], figures["early_exchanges"]) == (5 * buckets, 5 * early)
    (recording,) = recordings(folder)
    files = sorted(path.name for path in recording.iterdir())
    assert files == ["rank0.json.gz", "rank1.json.gz", "timeline.svg"]
