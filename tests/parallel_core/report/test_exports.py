"""Results elsewhere than in the page: as tables and pictures in a notebook, and as pyperf's
suites.
"""

from dataclasses import replace
from importlib.util import find_spec

import pytest

from parallel_core.compare.results import Comparison
from parallel_core.measurement.result import Answer
from parallel_core.report.notebook import as_html
from parallel_core.report.pyperf_export import suites
from tests.conftest import RunPython
from tests.parallel_core.compare.made_up import (
    changed,
    comparison,
    failed,
    measured,
    on_other_backend,
    parallel,
)
from tests.parallel_core.report.plots.synthetic_results import SWEPT, TIMED

TORCH = parallel("torch")


def test_a_notebook_gets_tables_and_sentences_as_text_the_answer_first() -> None:
    answer = Answer((TIMED.explanation, "It took 2 s."), "More <cores> than 2.")
    plain, told = as_html(TIMED), as_html(replace(TIMED, answer=answer))
    for html in (plain, told):
        assert "first &lt;b&gt;case&lt;/b&gt;" in html
        assert html.count("&lt;script&gt;alert(1)") == 1
        assert "<script>" not in html
    change = "What would change it: More &lt;cores&gt; than 2."
    assert told.index("It took 2 s.") < told.index("<table>") < told.index(change)


def test_a_sweep_becomes_a_table_with_a_row_for_each_point() -> None:
    html = as_html(SWEPT)
    assert (
        html.index("plain copy") < html.index("star") < html.index("4 KiB") < html.index("16 KiB")
    )
    # Dozens of times would say no more.
    assert "Python continues after" not in html
    assert "Python continues after" in as_html(TIMED)


@pytest.mark.skipif(find_spec("IPython") is None, reason="no IPython is installed")
def test_ipython_shows_a_result_and_a_plain_python_does_not_load_what_shows_it(
    run_python: RunPython,
) -> None:
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
from parallel_core.run.recording import Profile
shell.display_formatter.active_types = shell.display_formatter.format_types  # As in a notebook.
timeline = Timeline("synthetic", (Span("x", "compute", "cpu:1", "compute", 0, 10**9),))
data, _ = shell.display_formatter.format(Profile(timeline, {}))
assert data["image/svg+xml"].startswith("<svg"), data
"""
    shown = run_python(code).stdout
    assert "IPython.core.display.HTML object" in shown
    assert "IPython.core.display.SVG object" in shown


def test_a_suite_holds_values_and_warm_ups_of_every_process() -> None:
    (name, suite), *others = suites(
        comparison(measured(TORCH, (1.0, 1.1)), failed(parallel("mxnet")))
    ).items()
    assert (name, others) == ("torch-async", [])
    (benchmark,) = suite.get_benchmarks()
    assert benchmark.get_name() == "parallel: on all together"
    first, second = benchmark.get_runs()
    assert first.values == pytest.approx((1.0, 1.001, 0.999))
    assert second.warmups == ((1, 2.2),)
    metadata = benchmark.get_metadata()
    assert metadata.keys() >= {"cpu_affinity", "threads_per_device", "parameters"}
    assert [metadata[name] for name in ("framework", "engine", "device_cores")] == [
        "torch 1.0",
        "async",
        "0 1",
    ]


def test_devices_without_cores_have_suites_and_repeats_in_a_timing_are_pyperf_s_loops() -> None:
    one = on_other_backend(measured(TORCH, (1e-5,)), cores=[])
    repeated = changed(one, cases=(replace(one.results[0].cases[0], repeats=200),))
    saved = Comparison.from_json(comparison(repeated).as_json())
    (benchmark,) = suites(saved)["torch-async"].get_benchmarks()
    assert "device_cores" not in benchmark.get_metadata()
    (run,) = benchmark.get_runs()
    assert (run.get_loops(), run.warmups) == (200, ((200, 2e-5),))
