"""All that ten minutes on a machine with one GPU and no network can show, the most valuable first,
in `runs/gpu`.

    make gpu                                              # python3 has PyTorch there
    make gpu PYTHON=.venv/bin/python OPTIONS=--rehearse   # on CPUs: figures mean nothing

Each step is a process with a limit, and what it printed is kept at once, whatever becomes of it. A
second call runs what has no complete result: first what was never tried. Packages that are missing
come from `wheels/`.
"""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template
from subprocess import run
from time import monotonic
from typing import Any, NamedTuple

from backends.host import core_numbers
from parallel_core.system.subprocesses import Outcome, supervise

ROOT = Path(__file__).resolve().parents[1]
DONE, FAILED, HUNG, NOT_RUN = "done", "failed", "hung", "not run"
ON_GPU = {
    "kind": "gpu",
    "one": "gpu:0",
    "two": "gpu:0/0,gpu:0/1",
    "mixed": "cpu:1,gpu:0",
    "overlap": "gpu:0",
    "programs": "300",
    "budget": "15",
    "rounds": "12",
    "batch": "256",
    "steps": "40",
}
ON_CPUS = {
    "kind": "cpu",
    "one": "cpu:1",
    "two": "cpu:1,cpu:2",
    "mixed": "cpu:2,cpu:1",
    "overlap": "cpu:1,cpu:2",
    "programs": "3",
    "budget": "1",
    "rounds": "3",
    "batch": "32",
    "steps": "2",
}
"""Devices, and how much work there is for them."""
HOLD = (
    "-m parallel_core conformance --backend %s --programs $programs --minutes 1 --findings 5 "
    "--devices "
)
TEST = "-m pytest -q -rfE -p no:cacheprovider tests/backends/protocol/"
TIME = '-m benchmarks.workers gpu \'{"kind": "$kind", "devices": "%s", "what": "%s"}\''
RUN = "-m parallel_core run %s --backend torch --json - --budget $budget --devices "
TRAIN = (
    "-m parallel_core run data-parallel --backend torch --json - --batch-size $batch --limit "
    "$steps --devices "
)
COMPARE = (
    "-m parallel_core compare --quick --backends torch,jax --device-kind gpu --devices 1 "
    "--minutes 2 --json -"
)
METHOD = (2, "2026-11-28", "the caller issues to CUDA streams, without threads of ours")
"""Its number, the day of its first use, and what it means; see `benchmarks.declared`."""
GLIBCS = ("_2_28", "_2_27", "_2_24", "2014")
"""Of the wheels that run where PyTorch does."""
PROGRAMS, TESTS = " programs, ", " in "
COUNTED = {PROGRAMS: ("programs", "found"), TESTS: ("passed", "failed", "error")}
"""What a step prints that prints no JSON, and what its last line counts."""


class Step(NamedTuple):
    """Arguments of Python, with names of an amount after `$`, seconds at most, and what a whole
    output has but JSON.
    """

    name: str
    command: str
    seconds: float
    proof: str = ""
    needs_gpu: bool = False


DEVICE = Step(
    "device", "-c 'import torch; print(torch.cuda.get_device_name(0), torch.__version__)'", 60, " "
)
STEPS = (
    Step("versions", "-m pip list --format json", 20),
    Step("doctor", "-m parallel_core doctor --json -", 90),
    Step("conformance", HOLD % "torch" + "$one", 100, PROGRAMS),
    Step("conformance-two-streams", HOLD % "torch" + "$two", 100, PROGRAMS),
    Step("conformance-mixed", HOLD % "torch" + "$mixed", 100, PROGRAMS),
    Step("tests-order", TEST + "test_gpu_order.py", 60, TESTS, needs_gpu=True),
    Step("tests", TEST + "test_gpu.py", 90, TESTS, needs_gpu=True),
    Step("overlap", RUN % "overlap --rounds $rounds" + "$overlap", 60),
    Step("launch", TIME % ("$one", "launch"), 40),
    Step("training", TIME % ("$one", "training"), 60),
    Step("training-replayed", TIME % ("$one", "replayed"), 60),
    Step("two streams", TIME % ("$two", "units"), 40),
    Step("copies", TIME % ("$overlap", "copies"), 40),
    Step("training-two-streams", TRAIN + "$two", 40),
    Step("small-ops", RUN % "small-ops" + "$two", 60),
    Step("three-way", RUN % "three-way" + "$mixed", 60),
    Step("trace", RUN % "overlap --rounds $rounds" + "$overlap --trace $out/trace.json.gz", 60),
    Step("training-trace", TRAIN + "$one --trace $out/training.json.gz", 60),
    Step("tests-sync", TEST + "test_gpu_order.py --engine sync", 60, TESTS, needs_gpu=True),
    Step("conformance-jax", HOLD % "jax" + "$one", 100, PROGRAMS, needs_gpu=True),
    Step("frameworks", COMPARE, 150, needs_gpu=True),
)
AT_MOST = {"found": 0, "failed": 0, "error": 0, "launch: ours / plain": 1.6}
AT_LEAST = {
    "passed": 1,
    "overlap_efficiency": 0.9,
    "to_device": 0.95,
    "to_host": 0.95,
    "training: ours / plain": 0.95,
    "ours / plain graph": 0.9,
    "two streams: ours / plain": 0.95,
}
SHOWN = {
    "programs",
    "book_overlap_efficiency",
    "small_speedup",
    "saved_fraction",
    "images_per_second",
    "plain_images_per_second",
    "ours / plain",
    "small_units_speedup",
    "plain_small_units_speedup",
}
"""The figures that are held against targets, some in one step only, and those that are shown beside
them.
"""


def kept(step: Step, out: Path) -> dict[str, Any]:
    """Read what became of a step; nothing if it was never tried, or only a part of that was
    written.
    """
    with suppress(OSError, ValueError):
        return dict(json.loads((out / f"{step.name}.json").read_text()))
    return {}


def keep(step: Step, out: Path, state: str, reason: str, **rest: Any) -> None:
    """Write what became of a step, and show it in a line."""
    (out / f"{step.name}.json").write_text(
        json.dumps({"state": state, "reason": reason, **rest}, indent=1)
    )
    print(f"{step.name}: {state}, {rest.get('seconds', 0):.0f} s {reason}", flush=True)


def take(step: Step, out: Path, amounts: Mapping[str, str], limit: float) -> None:
    """Run a step in a process group, all of which ends with it, and keep what came of it."""
    arguments = Template(step.command).substitute(amounts, out=shlex.quote(str(out)))
    command = [sys.executable, *shlex.split(arguments)]
    start = monotonic()
    try:
        running = supervise(command, limit, set(core_numbers()))
        # A process that waits for its driver survives being killed.
        done = asyncio.run(asyncio.wait_for(running, limit + 10))
    except TimeoutError:
        done = Outcome(-signal.SIGKILL, "", "", True)
    answer = None
    with suppress(ValueError):
        answer = json.loads(done.output)
    state = state_of(step, done, answer)
    keep(
        step,
        out,
        state,
        "" if state == DONE else done.reason(limit),
        command=shlex.join(command),
        status=done.status,
        seconds=monotonic() - start,
        limit=limit,
        errors=done.errors.splitlines(),
        output=[] if answer else done.output.splitlines(),
        answer=answer,
    )


def state_of(step: Step, done: Outcome, answer: object) -> str:
    """Return what became of a step's process, which may have printed an answer as JSON."""
    if done.timed_out:
        return HUNG
    has_whole_output = step.proof in done.output if step.proof else bool(answer)
    # 1 is of findings and failed tests, too, and 3 of a disturbed machine.
    return DONE if done.status in (0, 1, 3) and has_whole_output else FAILED


def take_missing(
    steps: Sequence[Step], out: Path, amounts: Mapping[str, str], end: float, no_gpu: str = ""
) -> bool:
    """Run what has no complete result until the clock's `end`; return whether all has one that can
    have one here.
    """
    tried = {step.name: "status" in kept(step, out) for step in steps}
    for step in sorted(steps, key=lambda step: tried[step.name]):
        left = end - monotonic()
        if step.needs_gpu and no_gpu:
            keep(step, out, NOT_RUN, f"it needs a GPU: {no_gpu}")
        elif left > 1 and kept(step, out).get("state") != DONE:
            take(step, out, amounts, min(left, step.seconds))
    return {kept(step, out).get("state") for step in steps} <= {DONE, NOT_RUN}


def judge(steps: Sequence[Step], out: Path, title: str) -> None:
    """Hold the figures against their targets, show them, and write them to gpu.json and gpu.md."""
    # They need packages that `add_packages` may have brought.
    from benchmarks.harness.measurement import Method, Report, Request
    from benchmarks.harness.results import document_of, page, write
    from benchmarks.harness.targets import Finding, tally

    findings, notes = [], []
    for step in steps:
        result = kept(step, out)
        if result.get("state") != DONE:
            state, reason = result.get("state", NOT_RUN), result.get("reason", "")
            notes.append(f"{step.name}: {state} {reason}\n")
            continue
        figures = figures_of(step, result)
        for name in sorted(figures.keys() & {*SHOWN, *AT_MOST, *AT_LEAST}):
            estimate, low, high = figures[name]
            full_name = f"{step.name}: {name}"
            finding = {"estimate": estimate, "low": low, "high": high, "unit": ""}
            finding |= {"name": full_name, "target": target_of(full_name, name)}
            findings.append(Finding.from_json(finding))
        if "metrics" in (result["answer"] or ()):
            problems = result["answer"]["problems"]
            notes += [f"{step.name}: {problem}\n" for problem in problems]
    report = Report(findings, notes=notes)
    document = document_of("gpu", title, Method(*METHOD), report, Request(rounds=1))
    write(document, out / "gpu.json")
    print(page(document), tally(findings), sep="\n")


def figures_of(step: Step, result: Mapping[str, Any]) -> dict[str, Sequence[float | None]]:
    """Return the figures of a complete result, each with the bounds of its interval."""
    if step.proof:
        counted = {}
        for word in COUNTED[step.proof]:
            total = sum(map(int, re.findall(rf"(\d+) {word}", result["output"][-1])))
            counted[word] = (total, total, total)
        return counted
    if "metrics" not in result["answer"]:
        return {}
    intervals = result["answer"]["metric_intervals"]
    figures = {}
    for name, value in result["answer"]["metrics"].items():
        low, high = intervals.get(name, (None, None))
        figures[name] = (value, low, high)
    return figures


def target_of(full_name: str, name: str) -> dict[str, float]:
    """Return the bound of a figure by its kind, in one step or in all; empty without one."""
    for kind, bounds in (("at most", AT_MOST), ("at least", AT_LEAST)):
        bound = bounds.get(full_name, bounds.get(name))
        if bound is not None:
            return {kind: bound}
    return {}


def add_packages(wanted: Sequence[str], wheels: Path, site: Path) -> None:
    """Install what this Python lacks from wheels to a folder for all processes; if that fails, show
    what gets them.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, site)))
    sys.path.insert(1, str(site))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    pip += ["install", "--no-index"]
    find = [*pip, "--dry-run", "--report=-", f"--find-links={wheels}", *wanted]
    asked = run(find, capture_output=True, text=True)
    if asked.returncode:
        python = "--python-version={}.{}".format(*sys.version_info)
        options = ["--only-binary=:all:", python, f"--dest={wheels.name}"]
        options += [f"--platform=manylinux{glibc}_x86_64" for glibc in GLIBCS]
        download = f"pip download {shlex.join([*options, *wanted])}"
        print(f"{asked.stderr}With a network, in {ROOT}: {download}", flush=True)
        return
    missing = [package["download_info"]["url"] for package in json.loads(asked.stdout)["install"]]
    if missing:
        run([*pip, "--no-deps", "--upgrade", f"--target={site}", *missing])


def required_packages() -> list[str]:
    """Return the packages that setup.cfg requires, and what tests need."""
    _, _, behind = (ROOT / "setup.cfg").read_text().partition("install_requires =")
    return [*behind.partition("\n\n")[0].split(), "pytest"]


def main() -> int:
    """Run all steps that have no result, and judge all that have one; 1 if one is missing, as after
    a failure.
    """
    parser = ArgumentParser("make gpu", description="Options stand in OPTIONS=…")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu", help="folder of results")
    parser.add_argument("--minutes", type=float, default=9.5, help="for all steps together")
    parser.add_argument(
        "--rehearse", action="store_true", help="on CPU devices, as where there is no GPU"
    )
    options = parser.parse_args()
    end, out = monotonic() + 60 * options.minutes, options.out.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.chdir(ROOT)
    os.environ |= {"PYTHONUNBUFFERED": "1", "COLUMNS": "160"}
    try:
        # In a folder inside, no rehearsal takes the place of a result.
        (out / "rehearsal").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"cannot make the folder {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    add_packages(required_packages(), ROOT / "wheels", ROOT / "runs" / "site")
    take(DEVICE, out, {}, DEVICE.seconds)
    device = kept(DEVICE, out)
    no_gpu = "--rehearse" if options.rehearse else device["reason"]
    if no_gpu:
        amounts, title = ON_CPUS, "A rehearsal: no figure means anything"
        out = out / "rehearsal"
    else:
        amounts, title = ON_GPU, device["output"][-1]
    try:
        return 0 if take_missing(STEPS, out, amounts, end, no_gpu) else 1
    finally:
        judge(STEPS, out, title)


if __name__ == "__main__":
    sys.exit(main())
