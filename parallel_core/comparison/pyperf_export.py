"""Save a comparison's times as pyperf suites, one per framework and engine, for pyperf's own tools to read.

`python -m pyperf compare_to mxnet-async.json torch-async.json`, `check`, `stats` and `hist` work on them. They hold the
times until all was done; when control returned stands in the comparison's own file.
"""

import io
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyperf

from parallel_core.comparison.cells import Comparison, Measured
from parallel_core.measurement.result import Result
from parallel_core.system import files

__all__ = ["save_suites", "suites"]


def suites(comparison: Comparison) -> dict[str, pyperf.BenchmarkSuite]:
    """Return a suite for each framework and engine that gave valid results, by `mxnet-async` and the like."""
    benchmarks: dict[str, list[pyperf.Benchmark]] = {}
    for measured in comparison.cells:
        side = f"{measured.cell.backend}-{measured.cell.engine}"
        benchmarks.setdefault(side, []).extend(benchmark(measured, name) for name in measured.case_names)
    return {side: pyperf.BenchmarkSuite(found) for side, found in benchmarks.items() if found}


def benchmark(measured: Measured, case_name: str) -> pyperf.Benchmark:
    """Return a case's times: a pyperf run is a process, with its warm-ups."""
    name = f"{measured.cell.experiment}: {case_name}"
    return pyperf.Benchmark(
        [
            pyperf.Run(
                case.seconds,
                warmups=[(case.repeats, seconds) for seconds in case.warmup_seconds],
                metadata={**metadata(name, result), "loops": case.repeats},
                collect_metadata=False,
            )
            for result in measured.valid
            for case in result.cases
            if case.name == case_name
        ]
    )


def metadata(name: str, result: Result) -> dict[str, Any]:
    """Return what pyperf shows beside a benchmark, under pyperf's names where it has them."""
    environment, backend = result.environment, result.backend
    told = {
        "name": name,
        "unit": "second",
        "date": environment["utc"],
        "cpu_count": environment["cores"],
        "cpu_affinity": ",".join(map(str, environment["core_numbers"])),
        "cpu_model_name": environment["processor"],
        "platform": environment["system"],
        "python_version": environment["python"],
        "numpy_version": environment["numpy"],
        "parallel_core_version": environment["parallel_core"],
        "framework": f"{backend['name']} {backend['version']}",
        "engine": backend["engine"],
        "devices": ",".join(backend["devices"]),
        "device_cores": " ".join(",".join(map(str, cores)) for cores in backend["cores"]),
        "threads_per_device": backend["threads_per_device"],
        "parameters": ", ".join(f"{key}={value}" for key, value in result.parameters.items()),
    }
    # pyperf refuses empty values; a GPU keeps to no core, for one.
    return {key: value for key, value in told.items() if value != ""}


def save_suites(comparison: Comparison, folder: Path) -> None:
    """Write the suites into a folder, each file whole or not at all; raises OSError."""
    folder.mkdir(exist_ok=True)
    for side, suite in suites(comparison).items():
        files.write_whole(folder / f"{side}.json", partial(dump, suite))


def dump(suite: pyperf.BenchmarkSuite, stream: BinaryIO) -> None:
    """Write a suite to a binary stream, which is left open."""
    text = io.StringIO()
    suite.dump(text)
    stream.write(text.getvalue().encode())
