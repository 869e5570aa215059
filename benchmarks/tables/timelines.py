"""Draw the README's timelines of `overlap` from a comparison with traces.

parallel-core compare --backends mxnet,mxnet-as-shipped,torch,jax --rounds 5 --out DIR
python -m benchmarks.tables.timelines DIR
"""

from dataclasses import replace
from pathlib import Path

import click

from benchmarks.harness.results import results_folder
from parallel_core.comparison.analysis import analyse
from parallel_core.comparison.storage import read_comparison, saved_timelines
from parallel_core.report.charts import timelines_chart
from parallel_core.report.plots.svg import titled
from parallel_core.system.files import write_whole

TITLE = "Copies hide under matrix multiplications only if an engine has queues"
DRAWN = ("mxnet", "torch")
"""The frameworks whose timelines are drawn, if they were compared: four can be read."""
WIDTH, LANES = 460.0, 320.0
"""Pixels, of the whole and of the lanes: few enough to be read on a telephone."""


@click.command()
@click.argument("comparison", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=results_folder,
    help="A folder.",
)
def main(comparison: Path, out: Path) -> None:
    """Write timelines.svg."""
    measured = read_comparison(comparison)
    (overlap,) = (one for one in analyse(measured).experiments if one.experiment.name == "overlap")
    drawn = tuple(cell for cell in overlap.cells if cell.cell.backend in DRAWN)
    timeline_of = saved_timelines(comparison)
    chart = timelines_chart(replace(overlap, cells=drawn), timeline_of)[0] if timeline_of else None
    if chart is None:
        raise click.ClickException(f"{comparison} has no traces: compare without --no-traces")
    machine = measured.machine
    made = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['utc'][:10]}; one "
        "repetition under the profiler"
    )
    out.mkdir(parents=True, exist_ok=True)
    picture = titled(replace(chart, lanes_width=LANES), TITLE, made, width=WIDTH)
    write_whole(out / "timelines.svg", lambda stream: stream.write(picture))


if __name__ == "__main__":
    main()
