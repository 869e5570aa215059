"""The README's picture is drawn from a comparison's traces, and refused in a line without them."""

from pathlib import Path

from click.testing import CliRunner

from benchmarks.experiments.timelines import main
from tests.tree import ROOT


def test_a_comparison_without_traces_is_refused_in_a_line(tmp_path: Path) -> None:
    saved = ROOT / "benchmarks" / "results" / "epyc-2-cores"
    done = CliRunner().invoke(main, [str(saved), "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert done.output.count("\n") == 1
    assert "no traces" in done.output
    assert not [*tmp_path.iterdir()]
