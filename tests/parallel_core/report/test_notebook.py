"""How results show themselves in a notebook."""

from dataclasses import replace

from parallel_core.measurement.result import Answer
from parallel_core.report.notebook import as_html
from tests.conftest import RunPython
from tests.parallel_core.report.plots.synthetic_results import SWEPT, TIMED


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


def test_ipython_shows_a_result_and_a_plain_python_does_not_load_what_shows_it(run_python: RunPython) -> None:
    code = """
import sys
import parallel_core
assert "parallel_core.report.notebook" not in sys.modules
del sys.modules["parallel_core"]  # A notebook imports it later than IPython.
from IPython.testing.globalipapp import start_ipython
shell = start_ipython()
import parallel_core
assert "parallel_core.report.page" not in sys.modules
from tests.parallel_core.report.plots.synthetic_results import TIMED
data, _ = shell.display_formatter.format(TIMED)
assert data == {}
from backends.profiling import Span, Timeline
from parallel_core.trace_analysis.profiling_run import Profile
shell.display_formatter.active_types = shell.display_formatter.format_types  # As in a notebook.
timeline = Timeline("synthetic", (Span("x", "compute", "cpu:1", "compute", 0, 10**9),))
data, _ = shell.display_formatter.format(Profile(timeline, {}))
assert data["image/svg+xml"].startswith("<svg"), data
"""
    shown = run_python(code).stdout
    assert "IPython.core.display.HTML object" in shown
    assert "IPython.core.display.SVG object" in shown


def test_a_notebook_gets_the_answer_as_text_and_the_explanation_once() -> None:
    answer = Answer((TIMED.explanation, "It took 2 s."), "More <cores> than 2.")
    html = as_html(replace(TIMED, answer=answer))
    assert "<p><b>Answer</b></p>" in html
    assert html.count("&lt;script&gt;alert(1)") == as_html(TIMED).count("&lt;script&gt;alert(1)") == 1
    assert html.index("It took 2 s.") < html.index("What would change it: More &lt;cores&gt; than 2.")
