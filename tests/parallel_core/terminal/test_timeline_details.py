"""What is printed of devices' queues, operations and steps: readable in 80 columns, and only what a trace has."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from parallel_core.system.formatting import percent
from parallel_core.terminal.timeline import show_figures
from parallel_core.terminal.timeline_details import show_details
from parallel_core.trace_analysis.figures import CaseFigures, figures_of
from tests.parallel_core.trace_analysis.synthetic import made_case, queue_of
from tests.parallel_core.trace_analysis.traces.counting import LINKED, case_of_trace


def shown(found: CaseFigures) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=80)
    show_figures((found,), console)
    show_details(found, console)
    return stream.getvalue()


def in_words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("name", LINKED)
def test_real_traces_fit_in_80_columns(name: str) -> None:
    text = shown(figures_of(case_of_trace(name)))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert not re.search("None|nan", text)


def test_both_shares_of_hidden_communication_are_named() -> None:
    found = figures_of(case_of_trace("ddp"))
    text = in_words(shown(found))
    assert found.parts.hidden_exchange_share is not None
    assert f"overlap: {percent(found.parts.hidden_exchange_share)} of the exchange" in text
    assert "of collectives alone, device by device: 3 % (1.41 ms of 46.9 ms), as Holistic Trace Analysis counts" in text
    assert "gpu:0 90 % 3.2 % 7.1 % 46.9 ms 3 %" in text


def test_queues_operations_and_steps_have_tables() -> None:
    text = in_words(shown(figures_of(case_of_trace("ddp"))))
    assert "gpu:0 stream 7 597 ms 89.1 μs 1.49 ms 0.04 4" in text
    assert "ProfilerStep#6 225 ms" in text
    assert re.search(r"a step takes 222 ms \(\d+ ms … \d+ ms\) in the median of 3: ", text)
    assert "ProfilerStep#6 is unlike the others:" in text
    assert re.search(r"nccl\S+ number 15, in all 46.8 ms, mean 3.12 ms, share 69 %", text)
    assert "what bounds it: 100 % the host" in text


def test_names_of_operations_are_whole_for_their_ends_tell_them_apart() -> None:
    found = figures_of(case_of_trace("ddp"))
    arguments = [f"argument_{number}" for number in range(9)]
    longest = replace(found.operations[0], name=f"kernel<{', '.join(arguments)}>")
    text = shown(replace(found, operations=(longest,)))
    assert [one for one in arguments if one not in text] == []


def test_steps_that_are_many_are_left_to_the_json_but_for_those_unlike_the_others() -> None:
    found = figures_of(case_of_trace("ddp"))
    assert found.steps is not None
    many = replace(found.steps, steps=found.steps.steps * 20)
    text = in_words(shown(replace(found, steps=many)))
    assert "ProfilerStep#4" not in text
    assert "ProfilerStep#6 is unlike the others" in text


def test_of_what_a_trace_does_not_have_nothing_is_said() -> None:
    text = shown(figures_of(made_case(*queue_of([(0, 1), (2, 3)]))))
    assert "operations that take the most time" in text
    assert not re.search("step|collectives alone|idle between|None|nan", text)
