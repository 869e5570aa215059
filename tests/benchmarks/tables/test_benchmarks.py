"""Tables of benchmarks: a column for each framework that the findings are of."""

import json
from pathlib import Path

import pytest

from benchmarks.tables.all_tables import write_table


@pytest.mark.parametrize(
    ("names", "headings"),
    [
        (("torch", "mxnet"), "|  | MXNet | PyTorch |"),
        (("torch", "mxnet", "jax"), "|  | JAX | MXNet | PyTorch |"),
    ],
)
def test_findings_have_a_column_for_each_framework_that_they_are_of(
    root: Path, tmp_path: Path, names: tuple[str, ...], headings: str
) -> None:
    document = json.loads((root / "benchmarks/results/epyc-avx512-2-cores/allreduce.json").read_text())
    finding = {**document["findings"][0], "target": {}, "verdict": ""}
    document["findings"] = [
        {**finding, "name": f"{name}: time", "estimate": float(number), "low": number, "high": number}
        for number, name in enumerate(names, 1)
    ]
    (tmp_path / "made-up.json").write_text(json.dumps(document))
    first, _, row, *_ = write_table("findings made-up", tmp_path).splitlines()
    assert first == headings
    shown = [cell.strip().split()[0] for cell in row.strip("|").split("|")]
    assert shown == ["time", *(f"{1 + names.index(name)}.00" for name in sorted(names))]
