"""A trace with our findings as tracks: viewers can open it, and read again it is the original."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from backends.profiling.slices import FINDINGS
from parallel_core.command_line.trace import trace
from parallel_core.system.errors import RequestError
from parallel_core.traces.figures import as_json
from parallel_core.traces.ranks.reading import read_ranks

TRACES = Path(__file__).parents[1] / "stored"
SOURCES = (
    "of_jax/gpu.json",
    "of_jax/two_cpus.json.gz",
    "linked/event_sync.json.gz",
    "linked/ddp.json.gz",
    "not_hidden/late_loop.json.gz",
    "one_gpu/mi250_minitoy.json.gz",
    "one_gpu/kineto_of_2021.json.gz",
)


def with_findings(source: Path, target: Path) -> list[dict[str, Any]]:
    """Write a trace with findings, and return all its events."""
    ended = CliRunner().invoke(trace, [str(source), "--perfetto", str(target)])
    assert ended.exit_code == 0, ended.output
    content = target.read_bytes()
    text = gzip.decompress(content) if target.suffix == ".gz" else content
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return events


@pytest.mark.parametrize("ending", [".json", ".json.gz"])
@pytest.mark.parametrize("name", SOURCES)
def test_read_again_a_trace_has_the_figures_of_the_original(
    name: str, ending: str, tmp_path: Path
) -> None:
    target = tmp_path / f"with{ending}"
    with_findings(TRACES / name, target)
    (original,) = read_ranks([TRACES / name]).values()
    (again,) = read_ranks([target]).values()
    assert as_json(again.figures) == as_json(original.figures)
    assert again.notes == original.notes
    assert again.collectives == original.collectives


def tracks_in(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the events of our tracks, by the names of these."""
    ours = [event for event in events if event.get("pid") == FINDINGS]
    names = {
        event["args"]["name"]: event["tid"] for event in ours if event["name"] == "thread_name"
    }
    return {
        track: [event for event in ours if event["tid"] == thread and event["ph"] == "X"]
        for track, thread in names.items()
    }


def test_an_exchange_that_is_not_hidden_has_its_reason(tmp_path: Path) -> None:
    source = TRACES / "not_hidden/late_loop.json.gz"
    tracks = tracks_in(with_findings(source, tmp_path / "with.json"))
    shown = [
        event for track in tracks for event in tracks[track] if track.endswith("was not hidden")
    ]
    assert {event["name"] for event in shown} == {"launched-after"}
    (row,) = read_ranks([source])[0].figures[0].unhidden
    assert len(shown) == row.operations
    assert {event["args"]["more"] for event in shown} == {row.sentence}


def test_what_lay_under_computation_is_as_long_as_the_figures_say(tmp_path: Path) -> None:
    tracks = tracks_in(with_findings(TRACES / "of_jax/gpu.json", tmp_path / "with.json"))
    hidden = [event for event in tracks["exchange"] if event["name"] == "under computation"]
    assert sum(event["dur"] for event in hidden) == pytest.approx(2000)
    assert len(tracks["steps"]) == 10
    # By the clock of the file.
    assert tracks["steps"][0]["ts"] == pytest.approx(700)
    idle = tracks["gpu:0 stream 13, idle"]
    assert sum(event["dur"] for event in idle) == pytest.approx(9 * 400)
    for track in tracks.values():
        assert track == sorted(track, key=lambda event: float(event["ts"]))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"args": {', '"args": {"a number": NaN, ', 1),
    ],
    ids=["cut off", "not a number"],
)
def test_a_damaged_trace_is_refused(damage: Callable[[str], str], tmp_path: Path) -> None:
    source, target = tmp_path / "damaged.json", tmp_path / "with.json"
    source.write_text(damage((TRACES / "exchanging/deepep.json").read_text()))
    ended = CliRunner().invoke(trace, [str(source), "--perfetto", str(target)])
    assert isinstance(ended.exception, RequestError)
    assert "is cut off or damaged" in str(ended.exception)
    assert not target.exists()


def test_several_ranks_are_refused(tmp_path: Path) -> None:
    both = [str(path) for path in sorted((TRACES / "two_gpus").iterdir())]
    ended = CliRunner().invoke(trace, [*both, "--perfetto", str(tmp_path / "with.json")])
    assert ended.exit_code != 0
    assert not (tmp_path / "with.json").exists()
