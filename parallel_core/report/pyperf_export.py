"""Save a comparison's times as pyperf suites, one per framework and engine, for pyperf's tools.

The commands `check`, `stats` and `hist` read the suites, and so does `python -m pyperf compare_to
mxnet-async.json torch-async.json`. The suites hold the times until all was done; the times until
control returned are only in comparison.json.
"""

from io import StringIO
from operator import methodcaller
from pathlib import Path
from typing import Any

import pyperf

from parallel_core.compare.results import CellResults, Comparison
from parallel_core.measurement.result import Case, Result
from parallel_core.system import files


def suites(comparison: Comparison) -> dict[str, pyperf.BenchmarkSuite]:
    """Return a suite for each framework and engine with valid results, by name: `mxnet-async`."""
    benchmarks: dict[str, list[pyperf.Benchmark]] = {}
    for results in comparison.cells:
        side = f"{results.cell.backend}-{results.cell.engine}"
        for case_name in results.case_names:
            benchmarks.setdefault(side, []).append(_benchmark(results, case_name))
    return {side: pyperf.BenchmarkSuite(of_side) for side, of_side in benchmarks.items()}


def _benchmark(results: CellResults, case_name: str) -> pyperf.Benchmark:
    """Return the times of a case in a cell: each of its processes is a pyperf run."""
    name = f"{results.cell.experiment}: {case_name}"
    runs = []
    for result in results.valid:
        metadata = _metadata(name, result)
        runs += [_run(case, metadata) for case in result.cases if case.name == case_name]
    return pyperf.Benchmark(runs)


def _run(case: Case, metadata: dict[str, Any]) -> pyperf.Run:
    """Return the times of a case in one process, with its warm-ups."""
    return pyperf.Run(
        case.seconds,
        warmups=[(case.repeats, seconds) for seconds in case.warmup_seconds],
        metadata={**metadata, "loops": case.repeats},
        collect_metadata=False,
    )


def _metadata(name: str, result: Result) -> dict[str, Any]:
    """Return the metadata of a benchmark, under pyperf's own names if it has them."""
    environment, backend = result.environment, result.backend
    metadata = {
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
    # pyperf refuses empty values, such as the cores of a GPU.
    return {key: value for key, value in metadata.items() if value != ""}


def save_suites(comparison: Comparison, folder: Path) -> None:
    """Write the suites into a folder, each file whole or not at all; raises OSError."""
    folder.mkdir(exist_ok=True)
    for side, suite in suites(comparison).items():
        text = StringIO()
        suite.dump(text)
        content = text.getvalue().encode()
        files.write_whole(folder / f"{side}.json", methodcaller("write", content))
