"""The page of what no profiler says holds of recordings, in both directions: what is unknown is so
in each, and what is known is so in one at least.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from parallel_core.traces.profile.requirements import read_figure, recording_of
from parallel_core.traces.ranks import summary_of
from parallel_core.traces.ranks.reading import RankTrace, read_ranks
from parallel_core.traces.trace_files import files_of
from tests.parallel_core.traces.evidence.gpu_program import STEPS, GpuProgram, train
from tests.tree import ROOT

pytest.importorskip("sphinx")

from docs._extensions.unknown import ALWAYS, ON_CPUS, ON_GPUS, QUESTIONS

STORED = ROOT / "tests/parallel_core/traces"
Ranks = Mapping[int, RankTrace]


def of_gpu(folder: Path) -> Path:
    """Write what Kineto says of a program that copies and exchanges on a GPU."""
    program = GpuProgram()
    for _ in range(STEPS):
        with program.step():
            program.copy(100)
            train(program)
            program.exchange(500)
    return program.write(folder / "gpu.json")


def of_mxnet(folder: Path) -> Path:
    """Write what MXNet's profiler says of a program that copies and exchanges on two devices."""
    rows = [
        {"ph": "M", "args": {"name": f"cpu/{row}"}, "pid": row, "name": "process_name"}
        for row in (0, 1)
    ]
    events = []
    for number, name in enumerate(("dot", "_backward_dot", "CopyCPU2CPU", "KVStoreReduce")):
        operator = {"name": name, "cat": "operator", "pid": number % 2, "tid": 7}
        events.append({**operator, "ph": "B", "ts": 100 * number})
        events.append({**operator, "ph": "E", "ts": 100 * number + 90})
    path = folder / "mxnet.json"
    path.write_text(json.dumps({"traceEvents": rows + events, "displayTimeUnit": "ms"}))
    return path


def ranks_of(*names: str) -> Ranks:
    return read_ranks(files_of([STORED / name for name in names]))


RECORDED: Mapping[tuple[str, str], Callable[[Path], Sequence[Ranks]]] = {
    ("PyTorch", ON_GPUS): lambda folder: (
        ranks_of("stored/two_gpus"),
        read_ranks([of_gpu(folder)]),
    ),
    ("PyTorch", ON_CPUS): lambda _: (
        ranks_of("profile/stored/ddp-rank0.json.gz", "profile/stored/ddp-rank1.json.gz"),
    ),
    ("JAX", ON_GPUS): lambda _: (
        ranks_of("stored/of_jax/gpu.json"),
        ranks_of("stored/of_jax/tpu_sparsecore.json"),
    ),
    ("JAX", ON_CPUS): lambda _: (ranks_of("stored/of_jax/two_cpus.json.gz"),),
    ("MXNet", ON_CPUS): lambda folder: (read_ranks([of_mxnet(folder)]),),
}
ANSWERS: Mapping[str, Callable[[Ranks], object]] = {
    "no-links": lambda ranks: ranks[0].figures[0].waits,
    "no-launches": lambda ranks: ranks[0].figures[0].control_returned_seconds,
    "no-backward-pass": lambda ranks: ranks[0].figures[0].early_exchanges,
    "no-copies": lambda ranks: read_figure("hidden copies", recording_of(ranks)).interval,
    "not-matched": lambda ranks: summary_of(ranks).by_rank[0].waited_seconds,
    "not-said": lambda ranks: summary_of(ranks).world_size,
}
"""What a recording answers to the question of each code, or None."""


@pytest.mark.parametrize(("profiler", "devices"), RECORDED)
def test_what_the_page_says_holds_of_recordings(
    profiler: str, devices: str, tmp_path: Path
) -> None:
    recordings = RECORDED[profiler, devices](tmp_path)
    for question in QUESTIONS:
        is_unknown = question.unknown.get(profiler) in (ALWAYS, devices)
        answers = [ANSWERS[question.code](ranks) for ranks in recordings]
        is_answered = any(answer is not None for answer in answers)
        assert is_answered != is_unknown, question.words
