"""The check of GPUs, rehearsed on CPU devices where nothing is measured that means anything."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from backends.devices import DeviceKind
from benchmarks import gpu_check
from benchmarks.harness.side_by_side import Measured, Variant
from parallel_core.command_line import cli

KINDS: tuple[DeviceKind, ...] = ("gpu", "cpu")
SIDES = ("ours", "plain torch")


@pytest.mark.parametrize("device", KINDS)
def test_every_part_is_a_command_that_the_program_takes(device: DeviceKind) -> None:
    found = [one for part in gpu_check.parts("torch", device, 1).values() for one in part]
    runs = [one.command[5:] for one in found if "run" in one.command]
    assert {words[0] for words in runs} == {"overlap", "small-ops", "data-parallel"}
    for name, *words in runs:
        command = cli.get_command(click.Context(cli), "run").get_command(click.Context(cli), name)  # type: ignore[union-attr]
        command.parse_args(click.Context(command), words)
    assert any("graph-replay" in words for words in runs) == (device == "gpu")


def test_the_worker_copies_and_multiplies_in_all_precisions() -> None:
    worker = pytest.importorskip("benchmarks.workers.gpu", reason="torch is not installed")
    given = worker.measure("cpu", 1)
    assert given["problems"] == []
    whats = ("host to device", "device to host", *worker.PRECISIONS)
    assert [one["name"] for one in given["cases"]] == [f"{what}, {side}" for what in whats for side in SIDES]


def test_a_part_that_fails_costs_only_itself_and_ratios_point_the_right_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(variants: list[Variant], rounds: int) -> dict[str, list[Measured]]:
        figures = {"gigabytes": 2.0, "tera_operations": 3.0, "overlap_efficiency": 0.95}
        if variants[0].name.startswith("small"):
            raise click.ClickException("CUDA hangs")
        if variants[0].name.startswith(gpu_check.ONE):
            return {one.name: [Measured({}, {"images_per_second": 100.0 * n}, {})] for n, one in enumerate(variants, 1)}
        cases = {"host to device, ours": (2.0,), "host to device, plain torch": (1.0,)}
        return {variants[0].name: [Measured(cases, figures, {})] * rounds}

    monkeypatch.setattr(gpu_check, "take_turns", given)
    done = CliRunner().invoke(gpu_check.main, ["--device", "cpu", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert written["notes"] == ["Not measured: small operations on two streams: CUDA hangs"]
    assert {one["name"].removeprefix("torch: "): (one["estimate"], one["verdict"]) for one in written["findings"]} == {
        "overlap: overlap_efficiency": (pytest.approx(0.95), "met"),
        "training, one stream, batch 32": (pytest.approx(100), None),
        "training, two streams, batch 32": (pytest.approx(200), None),
        "training, two streams, batch 32 / one stream, batch 32": (pytest.approx(2), None),
        "host to device, ours": (pytest.approx(1), None),
        "host to device, plain torch": (pytest.approx(2), None),
        "host to device: our speed / that of plain torch": (pytest.approx(0.5), "missed"),
    }
    assert "no figure here means anything" in (tmp_path / "gpu.md").read_text()
