"""Put a comparison with traces among the results that pages show, with the README's timelines of
`overlap`.

parallel-core compare --backends mxnet,mxnet-as-shipped,torch,jax --rounds 5 --out DIR
python -m benchmarks.tables.timelines DIR
"""

import json
from dataclasses import replace
from pathlib import Path

import click

from benchmarks.harness.results import read_json, results_folder, write_text
from benchmarks.tables.sources import measured_on
from parallel_core.compare.analysis import analyse
from parallel_core.compare.storage import RESULT, read_comparison, saved_timelines
from parallel_core.report.charts import timelines_chart
from parallel_core.report.plots.svg import titled

TITLE = "Copies hide under matrix multiplications only if an engine has queues"
DRAWN = ("mxnet", "torch")
"""The frameworks whose timelines are drawn, if they were compared: four can be read."""
WIDTH, LANES = 460.0, 320.0
"""Pixels, of the whole and of the lanes: few enough to be read on a telephone."""


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=results_folder)
def main(folder: Path, out: Path) -> None:
    """Write OUT/timelines.svg, of the comparison in FOLDER, and copy its results there."""
    comparison = read_comparison(folder)
    analysed = {part.experiment.name: part for part in analyse(comparison).experiments}
    overlap = analysed["overlap"]
    cells = tuple(cell for cell in overlap.cells if cell.cell.backend in DRAWN)
    chart = None
    if timeline_of := saved_timelines(folder):
        chart, _ = timelines_chart(replace(overlap, cells=cells), timeline_of)
    if chart is None:
        raise click.ClickException(f"{folder} has no traces: compare without --no-traces")
    document = {"machine": {**comparison.machine, "utc": comparison.utc}}
    source = f"{measured_on(folder / RESULT, document)}; one repetition under the profiler"
    picture = titled(replace(chart, lanes_width=LANES), TITLE, source, width=WIDTH)
    write_text(out / "timelines.svg", picture.decode())
    # Without indentation it is a third shorter.
    results = json.dumps(read_json(folder / RESULT), ensure_ascii=False, separators=(",\n", ":"))
    write_text(out / RESULT, f"{results}\n")


if __name__ == "__main__":
    main()
