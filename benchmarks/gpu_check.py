"""Check everything that needs a GPU, on one GPU, in less than four minutes.

python -m benchmarks.gpu_check

Runs the tests that need a GPU and measures overlap, streams, small operations, training, the bus and the matrix units,
each against the best that the same run measured. It needs Python 3.11, NumPy 1 or 2, PyTorch for CUDA and this
checkout, which need not be installed; the tests need pytest. `--device cpu` rehearses the program without a GPU.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

# Run as a script, Python looks for packages beside the script only.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gpu.cuda_tests import run_tests
from benchmarks.gpu.parts import PartResult, Place, run_part
from benchmarks.harness.targets import Finding, table_of, tally
from parallel_core.system.files import write_json, write_whole

OF_ANY_FRAMEWORK = {
    "overlap": "benchmarks.gpu.overlap:measure",
    "small operations": "benchmarks.gpu.small_operations:measure",
    "training": "benchmarks.gpu.training:measure",
}
OF_TORCH = {"bus": "benchmarks.gpu.bus:measure", "matrix products": "benchmarks.gpu.matrices:measure"}
RESULTS = Path(__file__).parent / "results"
BUDGET_SECONDS = 225.0
TESTS_SECONDS = 60.0
ROUNDS = {"gpu": 7, "cpu": 5}
"""Five are the fewest at which no single disturbance makes a result that cannot be."""
VERSIONS = ("torch", "cuda", "cudnn", "numpy", "python", "parallel_core")
ENGINES = {"gpu": ("async", "sync"), "cpu": ("async",)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check and write its files; return 0, 1 if something failed, 2 if there is no GPU."""
    options = parse(arguments)
    start = monotonic()
    place = Place("torch", options.device, ROUNDS[options.device])

    def left() -> float:
        return start + options.seconds - monotonic()

    machine = run_part("benchmarks.gpu.parts:describe", place, left())
    if reasons := (*machine.problems, *machine.skipped):
        print(f"gpu_check: {reasons[0]} (--device cpu rehearses without a GPU)", file=sys.stderr)
        return 2
    parts: dict[str, PartResult] = {}
    for name, part in measured(place, left):
        parts[name] = part
        print(f"{monotonic() - start:4.0f} s  {name}: {outcome(part)}", file=sys.stderr, flush=True)
    seconds = monotonic() - start
    path = options.out / file_name("rehearsal" if options.device == "cpu" else machine.parameters["device"])
    options.out.mkdir(parents=True, exist_ok=True)
    page = as_markdown(machine.parameters, parts, options.device, seconds)
    document = {
        "schema": 1,
        "benchmark": "gpu_check",
        "rehearsal": options.device == "cpu",
        "seconds": round(seconds, 1),
        "machine": machine.parameters,
        "parts": {name: part.as_json() for name, part in parts.items()},
    }
    write_json(path.with_suffix(".json"), document)
    write_whole(path.with_suffix(".md"), lambda stream: stream.write(page.encode()))
    print(page)
    print(f"{summary(parts)}; written to {path}.json and .md, after {seconds:.0f} s")
    return 1 if any(part.problems for part in parts.values()) else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; ends with status 2 if it is wrong."""
    parser = argparse.ArgumentParser("gpu_check", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: a rehearsal, with tiny sizes")
    parser.add_argument("--seconds", type=float, default=BUDGET_SECONDS, help="what is not begun by then is left out")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for gpu-NAME.json and gpu-NAME.md")
    return parser.parse_args(arguments)


def measured(place: Place, left: Callable[[], float]) -> Iterator[tuple[str, PartResult]]:
    """Run the tests and all parts, PyTorch's first, and yield the result of each; `left` returns the seconds left."""
    for engine in ENGINES[place.kind]:
        yield f"CUDA tests, {engine} engine", run_tests(engine, min(TESTS_SECONDS, left()))
    for name, part in {**OF_ANY_FRAMEWORK, **OF_TORCH}.items():
        yield name, run_part(part, place, left())
    mxnet = replace(place, framework="mxnet")
    trial = run_part("benchmarks.gpu.parts:try_out", mxnet, left())
    if reasons := (*trial.problems, *trial.skipped):
        yield "mxnet", PartResult(skipped=reasons)
        return
    for name, part in OF_ANY_FRAMEWORK.items():
        yield f"{name}, mxnet", run_part(part, mxnet, left())


def outcome(part: PartResult) -> str:
    """Say in a word how a part went."""
    if part.problems:
        return f"FAILED: {part.problems[0]}"
    if part.findings or part.notes:
        return "done"
    return f"left out: {part.skipped[0]}"


def file_name(device: str) -> str:
    """Make a file's name, without suffix, of a GPU's: `gpu-nvidia-h200`."""
    return "gpu-" + re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def as_markdown(machine: Mapping[str, Any], parts: Mapping[str, PartResult], kind: str, seconds: float) -> str:
    """Write the findings of all parts as one table, and below it what else there is to say of each."""
    device = machine["device"]
    lines = [f"## {device}: what its streams, its bus and its matrix units give", ""]
    if kind == "cpu":
        lines += ["**A rehearsal without a GPU: no figure here means anything.**", ""]
    else:
        memory = machine["device_memory_bytes"] / 2**30
        what = f"{memory:.0f} GiB, compute capability {machine['compute_capability']}"
        lines += [f"{device}, {what}, {machine['multiprocessors']} multiprocessors, driver {machine['driver']}", ""]
    versions = ", ".join(f"{name} {machine[name]}" for name in VERSIONS if name in machine)
    host = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    how = f"medians of rounds, with intervals of 95 %; {machine['utc']}, in {seconds:.0f} s"
    lines += [
        f"{host}, {versions}; {how}",
        "",
        table_of(findings_of(parts)),
        "",
    ]
    for name, part in parts.items():
        remarks = [
            *part.notes,
            *(f"FAILED: {problem}" for problem in part.problems),
            *(f"Not measured: {reason}" for reason in part.skipped),
        ]
        lines += [f"- **{name}**: {text}" for text in remarks]
    return "\n".join(lines).rstrip() + "\n"


def summary(parts: Mapping[str, PartResult]) -> str:
    """Say how many targets were met, and which parts failed or were left out."""
    failed = [name for name, part in parts.items() if part.problems]
    left_out = [name for name, part in parts.items() if part.skipped and not part.findings and not part.notes]
    return "; ".join(
        [
            tally([finding.verdict for finding in findings_of(parts)]),
            *([f"failed: {', '.join(failed)}"] if failed else []),
            *([f"left out: {', '.join(left_out)}"] if left_out else []),
        ]
    )


def findings_of(parts: Mapping[str, PartResult]) -> list[Finding]:
    """List the findings of all parts."""
    return [finding for part in parts.values() for finding in part.findings]


if __name__ == "__main__":
    sys.exit(main())
