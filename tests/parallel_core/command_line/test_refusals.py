"""Invalid input is one line that says what is wrong or what was meant, status 2, and no file."""

import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import backends
from backends.registry.loading import title
from parallel_core.command_line.commands import usual_backend
from parallel_core.experiments import EXPERIMENTS
from tests.conftest import RunProgram
from tests.tree import ROOT

PARALLEL = "run parallel --backend numpy --size 64 --rounds 5"
TRAIN = "run data-parallel --backend numpy"
SUM = "run allreduce --backend numpy"
SIDE_BY_SIDE = "run parallel --backend mxnet,torch"
CONFORMANCE = "conformance --backend numpy"
LAUNCH = "launch --processes 2"
LONG = "x" * 300
SAVED = ROOT / "benchmarks/results/epyc-2-cores"
HERE = {name for name in backends.names() if name == "numpy" or find_spec(name)}

REFUSED = (
    ("run increments --backend numpy", "'increments' is a part of the experiment 'async'"),
    ("run nonsense --backend numpy", "unknown experiment 'nonsense' (known: async, barriers, "),
    (
        "run parallel --backend nonsense",
        "unknown backend 'nonsense' (known: jax, mxnet, numpy, torch)",
    ),
    (f"{PARALLEL} --engine async", "numpy is the synchronous reference and has no async engine"),
    (
        f"{PARALLEL} --variant bulk-on",
        "numpy queues nothing, and so has no variants: leave out --variant bulk-on",
    ),
    (
        "run parallel --backend torch --variant fast",
        "unknown variant 'fast' (known for torch: copy-on-own-queue",
    ),
    (
        "run parallel --backend jax --variant bulk-on",
        "the backend 'jax' has no variants: leave out 'bulk-on'",
    ),
    (
        "run parallel --backend torch --variant bulk-on",
        "torch has no variant 'bulk-on', for PyTorch runs operators",
    ),
    (
        "run parallel --backend mxnet --engine sync --variant bulk-on",
        "mxnet's sync engine queues nothing, and so has no variants of queueing: use --engine",
    ),
    (
        "run parallel --backend torch --engine sync --variant tf32",
        "so always computes in float32: use --engine async",
    ),
    (
        f"{PARALLEL} --workers 2",
        "numpy's sync engine has no queue for 2 workers to serve: use --workers 1",
    ),
    (f"{PARALLEL} --devices 0", "Invalid value for '--devices': 0 is not in the range 1<=x<=256"),
    (f"{PARALLEL} --devices 1", "the experiment 'parallel' compares devices: it needs at least 2"),
    (f"{PARALLEL} --devices two", "Invalid value for '--devices'"),
    (f"{PARALLEL} --device-kind gpu", "numpy finds 0 GPUs"),
    (
        f"{PARALLEL} --json /nowhere/result.json",
        "cannot write to /nowhere/result.json: No such file or directory",
    ),
    (f"{PARALLEL} --json .", "cannot write to .: is a directory"),
    (f"{PARALLEL} --json /dev/null/x", "cannot write to /dev/null/x: Not a directory"),
    (f"{TRAIN} --batch-size 0", "Invalid value for '--batch-size'"),
    (f"{TRAIN} --lr fast", "'fast' is not a positive number"),
    (f"{TRAIN} --lr nan", "'nan' is not a positive number"),
    (f"{TRAIN} --lr -1", "'-1' is not a positive number"),
    ("run learning-rates --backend numpy --rates 0.1,fast", "'fast' is not a positive number"),
    (f"{TRAIN} --data-dir /nowhere", "/nowhere holds neither train-images-idx3-ubyte.gz"),
    (f"{TRAIN} --plot /nowhere/x.svg", "cannot write to /nowhere/x.svg"),
    (f"{TRAIN} --checkpoint-steps 3", "--checkpoint-steps needs --checkpoint DIR"),
    (f"{SUM} --sizes 4XB", "'4XB' is not a size in bytes (4096, 4KiB, "),
    (f"{SUM} --sizes 1MiB..4KiB", "the range '1MiB..4KiB' ends below its beginning"),
    (f"{SUM} --sizes 999999GiB", "vectors of 999999 GiB on 2 devices take about "),
    (
        f"{SUM} --algorithm butterfly",
        "unknown algorithm 'butterfly' (known: star, ring, tree, sharded, ",
    ),
    (f"{SUM} --devices 1", "the experiment 'allreduce' sums over devices: it needs at least 2"),
    # Guesses.
    (f"{PARALLEL} --guess much", "a guess is a number, or a count such as 10/10, and not 'much'"),
    (f"{PARALLEL} --guess 11/10", "begun_beside_another_device cannot be 11 of 10"),
    (f"{PARALLEL} --guess 0/0", "begun_beside_another_device cannot be 0 of 0"),
    ("run learning-rates --backend numpy --guess 10/10", "learning-rates counts nothing: guess "),
    (f"{PARALLEL} --guess -1", "parallel_speedup cannot be -1"),
    ("run overlap --backend numpy --guess 1.4", "guess a number between -1 and 1"),
    (f"{PARALLEL} --guess nan", "a guess of parallel_speedup is a number, and not nan"),
    # Traces, before anything is run.
    (f"{PARALLEL} --trace t.json", "numpy has no profiler"),
    (f"{PARALLEL} --timeline t.svg", "numpy has no profiler"),
    ("run parallel --backend torch --trace -", "--trace needs a file"),
    ("run parallel --backend torch --trace nowhere/t.json", "nowhere"),
    ("run parallel --backend torch --timeline t.txt", "pictures are SVG"),
    ("trace none.json", "cannot read none.json"),
    ("trace none.json --timeline picture.txt", "pictures are SVG"),
    ("trace none.json --communication (", "no regular expression"),
    ("trace none.json --kernel-delay -1", "-1 is not in the range"),
    # What only one backend can do.
    ("run parallel --backend mxnet,nmupy", "unknown backend 'nmupy'"),
    ("run parallel --backend mxnet,mxnet", "names one twice"),
    (f"{SIDE_BY_SIDE} --plot a.svg", "--plot is for one backend at a time"),
    (f"{SIDE_BY_SIDE} --workers 2", "--workers is for one backend at a time"),
    (f"{SIDE_BY_SIDE} --variant tf32", "--variant is for one backend at a time"),
    (f"{SIDE_BY_SIDE} --guess 1", "--guess is for one backend at a time"),
    (f"{SIDE_BY_SIDE} --engine lazy", "unknown engine 'lazy' (known: async, sync)"),
    (f"{SIDE_BY_SIDE} --device-kind tpu", "unknown device kind 'tpu' (known: auto, cpu, gpu)"),
    (
        "run data-parallel --backend mxnet,torch --checkpoint D",
        "--checkpoint is for one backend at a time",
    ),
    (
        "run data-parallel --backend mxnet,torch --checkpoint-steps 3",
        "--checkpoint-steps is for one backend",
    ),
    (f"{SIDE_BY_SIDE} --devices cpu:1,cpu:2", "--devices needs a number"),
    (
        f"run parallel --backend mxnet --python mxnet={sys.executable}",
        "--python is for several backends",
    ),
    ("conformance", "either --backend NAME or --all"),
    (f"{CONFORMANCE} --all", "either --backend NAME or --all"),
    ("conformance --backend nmupy", "unknown backend 'nmupy'"),
    (f"{CONFORMANCE} --engine async", "numpy is the synchronous reference"),
    (f"{CONFORMANCE} --variant tf32", "numpy queues nothing, and so has no variants"),
    (f"{CONFORMANCE} --programs 0", "0 is not in the range"),
    (
        "doctor --json /nowhere/doctor.json",
        "cannot write to /nowhere/doctor.json: No such file or directory",
    ),
    (
        "profile --output x --json - -- true",
        "--json needs a file: standard output is the program's",
    ),
    # What stands behind -- is the program's.
    ("profile --output x --json - -- true --backend none.py:Net", "--json needs a file"),
    ("compare increments", "'increments' is a part of the experiment 'async'"),
    ("compare nonsense", "unknown experiment 'nonsense' (known: async, barriers, "),
    (
        "compare --backends nonsense",
        "unknown backend 'nonsense' (known: jax, mxnet, numpy, torch, mxnet-as-shipped)",
    ),
    ("compare --engines lazy", "unknown engine 'lazy' (known: async, sync)"),
    ("compare --rounds 0", "0 is not in the range 1<=x"),
    ("compare --deadline soon", "'soon' is not a positive number"),
    ("compare --minutes 0", "'0' is not a positive number"),
    ("compare --device-kind tpu", "unknown device kind 'tpu' (known: auto, cpu, gpu)"),
    ("compare --python torch", "'torch' is not of the form NAME=PATH"),
    (
        "compare --python torch=/nowhere/python",
        "'/nowhere/python' is not a program that can be run",
    ),
    ("compare --python numpy=python3", "--python names 'numpy', which is not compared"),
    (
        "compare --python torch=/bin/false",
        "/bin/false cannot run parallel-core (ended with status 1 and no message)",
    ),
    ("compare --out /dev/null/x", "cannot make the folder /dev/null/x"),
    ("lab start queue --dir /dev/null/x", "cannot make the folder /dev/null/x: Not a directory"),
    ("compare --like /nowhere", "cannot read /nowhere: No such file or directory"),
    ("compare --like /dev/null", "/dev/null is not a comparison that parallel-core compare wrote"),
    (
        f"compare --quick --like {SAVED}",
        f"--like {SAVED} was made with mode full, not quick: see --quick",
    ),
    ("compare --json /nowhere/x.json", "cannot write to /nowhere/x.json"),
    ("diff old new --fail-if-slower=-1", "'-1' is not zero or a positive number"),
    ("diff old new --fail-if-slower inf", "'inf' is not zero or a positive number"),
    (f"{LAUNCH} -- run data-parallel", "say which framework"),
    (f"{LAUNCH} -- run data-parallel --backend", "say which framework"),
    (f"{LAUNCH} --backend torch", "give the command of each process after --"),
    (f"{LAUNCH} --backend torch -- compare", "give the command of each process after --"),
    (f"{LAUNCH} --backend torch -- run", "'run' does not run on several processes"),
    (f"{LAUNCH} --backend torch -- run async", "'run async' does not run on several processes"),
    (f"{LAUNCH} --backend torch -- run data-parallel --backend mxnet", "name it once"),
    (
        f"{LAUNCH} --backend keras -- run data-parallel",
        "unknown backend 'keras' (known: jax, mxnet, numpy,",
    ),
    *(
        (line, "jax runs in one process here: on several, use mxnet or torch")
        for line in (
            f"{LAUNCH} --backend jax -- run data-parallel",
            f"{LAUNCH} -- run allreduce --backend jax",
        )
    ),
    (f"{LAUNCH} --servers 2 --backend torch -- run data-parallel", "--servers are MXNet's"),
    (f"{LAUNCH} --timeout nan -- run data-parallel", "--timeout"),
    (f"{LAUNCH} --port 65536 -- run data-parallel", "--port"),
    ("launch --backend torch -- run data-parallel", "say how many"),
    ("launch --processes 0 -- run data-parallel", "--processes"),
    # No file can have such a name.
    (f"report {LONG}", "File name too long"),
    (f"{TRAIN} --data-dir {LONG}", "File name too long"),
    (f"{TRAIN} --checkpoint {LONG}", "File name too long"),
    (f"compare --out {LONG}", "File name too long"),
    (f"{PARALLEL} --json {LONG}", "File name too long"),
    (f"{PARALLEL} --json LOOP", "Too many levels of symbolic links"),
    ("report LOOP", "Too many levels of symbolic links"),
)


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[line[:80] for line, _ in REFUSED])
def test_a_bad_request_is_refused_in_one_line(
    program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    loop = tmp_path / "LOOP"
    loop.symlink_to(loop)
    done = program(*shlex.split(line))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == [loop]


ENDING = """
import sys
from backends.numpy.backend import NumPyBackend
{at_import}
class Net:
    def __init__(self, devices, kind, engine, threads):
        {when_loaded}
        self.inner = NumPyBackend(devices, kind, engine, threads)
    def __getattr__(self, name):
        return getattr(self.inner, name)
    def launch(self, fn, *args):
        sys.exit(0)
"""


@pytest.mark.parametrize(
    "place",
    [{"at_import": "sys.exit(0)"}, {"when_loaded": "sys.exit(0)"}, {}],
    ids=["import", "loading", "launch"],
)
def test_a_backend_that_ends_the_program_is_refused_in_one_line(
    tmp_path: Path, place: dict[str, str]
) -> None:
    file = tmp_path / "engine.py"
    file.write_text(ENDING.format(**{"at_import": "", "when_loaded": "", **place}))
    # In a separate process, where the engine becomes known by its name.
    command = [
        sys.executable,
        "-m",
        "parallel_core",
        "run",
        "building-blocks",
        "--backend",
        f"{file}:Net",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "exit" in done.stderr.lower()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("rn", "run"),
        ("run barrier", "barriers"),
        ("run parallel --backend mxet", "mxnet"),
        ("lab strt", "start"),
        ("launch -- run data-paralel", "data-parallel"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_one_and_no_list(
    program: RunProgram, words: str, meant: str
) -> None:
    done = program(*words.split())
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.split()[-1] == f"{meant}?"
    assert {*done.stderr.replace("'", " ").replace("?", "").split()} & {*EXPERIMENTS} <= {meant}


def test_a_name_that_is_like_none_gets_all_that_a_user_can_call(program: RunProgram) -> None:
    done = program("nonsense")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    known = (
        done.stderr.partition("unknown command 'nonsense' (known: ")[2]
        .removesuffix(")\n")
        .split(", ")
    )
    assert {"run", "compare", "list"} < {*known}
    assert "measure" not in known


def test_a_job_names_its_framework_among_those_installed(program: RunProgram) -> None:
    done = program("launch", "--processes", "2", "--", "run", "data-parallel")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    named = {*done.stderr.rpartition(": ")[2].strip().split(", ")}
    assert named == ((HERE & {"mxnet", "torch"}) or {"none"})


def test_a_run_that_names_no_framework_takes_one_that_is_installed(program: RunProgram) -> None:
    done = program("run", "barriers", "--devices", "0")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert usual_backend() in HERE
    done = program("run", "parallel", "--size", "32", "--rounds", "1")
    _question, about_backend, *_ = done.stdout.splitlines()
    assert about_backend.startswith(title(usual_backend()))
