"""Pictures of results: by the file's ending, of whatever the result holds, in `--plot` and in a notebook."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from parallel_core import RequestError
from parallel_core import plots as drawing
from parallel_core.comparison.cells import Cell
from parallel_core.measurement.result import Result
from parallel_core.report.notebook import as_html, as_png
from tests.parallel_core.comparison.made_up import result

NASTY = "<script>alert(1)</script>"


def made_up(experiment: str, **series: tuple[float, ...]) -> Result:
    found = result(Cell(experiment, "torch", "async"), {"first <b>case</b>": 0.1, "second": 0.2})
    return replace(found, series=series, explanation=NASTY)


TRAINED = made_up("data-parallel", loss=(2.0, 1.0), test_accuracy=(0.5,))
SWEPT = made_up(
    "allreduce",
    bytes=(4096.0, 16384.0),
    **{"algbw_gb_per_s plain copy": (1.0, 2.0), "algbw_gb_per_s star": (0.5, 0.7)},
)
TIMED = made_up("parallel")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (TRAINED, ["epoch", "training loss", "accuracy"]),
        (SWEPT, ["plain copy", "star", "GB/s", "4 KiB", "16 KiB"]),
        (TIMED, ["first <b>case</b>", "second", "until control returned"]),
    ],
    ids=lambda found: getattr(found, "experiment", ""),
)
def test_a_picture_shows_what_the_result_holds(found: Result, told: list[str]) -> None:
    drawn = drawing.picture(found)
    texts = [text.get_text() for text in drawn.findobj(lambda artist: hasattr(artist, "get_text"))]
    assert set(told) <= set(texts)
    assert found.experiment in drawn.get_suptitle()
    assert found.backend["version"] in drawn.get_suptitle()


@pytest.mark.parametrize("found", [TRAINED, SWEPT, TIMED], ids=lambda found: found.experiment)
def test_a_notebook_gets_a_picture_that_is_not_blank(found: Result) -> None:
    png = as_png(found)
    assert png is not None
    with Image.open(BytesIO(png)) as image:
        assert len(image.convert("RGB").getcolors(maxcolors=2**24)) > 20


def test_each_format_is_what_it_says() -> None:
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        stream = BytesIO()
        drawing.draw(TIMED, stream, kind)
        assert stream.getvalue().startswith(start)


def test_an_unknown_format_is_refused_before_anything_runs() -> None:
    with pytest.raises(RequestError, match=r"x\.gif names no kind of picture: end it in \.png, \.svg, \.pdf"):
        drawing.check_drawing(Path("x.gif"))


def test_a_notebook_gets_tables_and_sentences_as_text() -> None:
    html = as_html(TIMED)
    assert "first &lt;b&gt;case&lt;/b&gt;" in html
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>" not in html


def test_a_sweep_becomes_a_table_with_a_row_for_each_point() -> None:
    html = as_html(SWEPT)
    assert html.index("plain copy") < html.index("star") < html.index("4 KiB") < html.index("16 KiB")
    # Dozens of times would say no more.
    assert "control returned after" not in html
    assert "control returned after" in as_html(TIMED)
