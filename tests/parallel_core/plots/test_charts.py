"""Pictures of results: by the file's ending, of whatever the result holds, in `--plot` and in a notebook."""

from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from parallel_core import RequestError
from parallel_core.measurement.result import Result
from parallel_core.plots import as_png, check_drawing, draw
from parallel_core.plots.charts import result_figure
from tests.parallel_core.plots.synthetic_results import SWEPT, TIMED, TRAINED


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (TRAINED, ["epoch", "training loss", "accuracy"]),
        (SWEPT, ["plain copy", "star", "GB/s", "4 KiB", "16 KiB"]),
        (TIMED, ["first <b>case</b>", "second", "until control returned"]),
    ],
    ids=lambda shown: getattr(shown, "experiment", ""),
)
def test_a_picture_shows_what_the_result_holds(shown: Result, expected: list[str]) -> None:
    drawn = result_figure(shown)
    texts = [text.get_text() for text in drawn.findobj(lambda artist: hasattr(artist, "get_text"))]
    assert set(expected) <= set(texts)
    assert shown.experiment in drawn.get_suptitle()
    assert shown.backend["version"] in drawn.get_suptitle()


@pytest.mark.parametrize("shown", [TRAINED, SWEPT, TIMED], ids=lambda shown: shown.experiment)
def test_a_notebook_gets_a_picture_that_is_not_blank(shown: Result) -> None:
    png = as_png(shown)
    assert png is not None
    with Image.open(BytesIO(png)) as image:
        assert len(image.convert("RGB").getcolors(maxcolors=2**24)) > 20


def test_each_format_is_what_it_says() -> None:
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        stream = BytesIO()
        draw(TIMED, stream, kind)
        assert stream.getvalue().startswith(start)


def test_an_unknown_format_is_refused_before_anything_runs() -> None:
    with pytest.raises(RequestError, match=r"x\.gif names no kind of picture: end it in \.png, \.svg, \.pdf"):
        check_drawing(Path("x.gif"))
