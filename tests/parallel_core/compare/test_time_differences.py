"""Why times differ: what they are made of, between cells and between saved comparisons, and when
that fails a check.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.compare.cell_changes import Difference, compare_with_old
from parallel_core.compare.results import Cell, CellResults, Comparison
from parallel_core.compare.time_differences import (
    account_of,
    systematic_errors,
    time_change,
    time_difference,
)
from parallel_core.system.files import write_json
from parallel_core.system.machine import MachineWatch
from tests.conftest import RunProgram
from tests.parallel_core.command_line.refused import assert_refused
from tests.parallel_core.compare.made_up import (
    MACHINE,
    ONE,
    TOGETHER,
    changed,
    comparison,
    failed,
    measured,
    on_other_backend,
    parallel,
    times,
    with_parts,
)

MXNET, TORCH = parallel("mxnet"), parallel("torch")
PARTS = {"operations": 0.6, "overhead": 0.2, "transfer": 0.1}
HINT = "(compare --like OLD does the work of OLD)"
USUAL = comparison(measured(MXNET, ONE), measured(TORCH, ONE))


def made_of(
    cell: Cell, whole: float, parts: Mapping[str, float], noise: tuple[float, ...] = ONE
) -> CellResults:
    """Return a cell's results with a time and its parts, in seconds, in each process."""
    results = measured(cell, [whole * factor for factor in noise])
    return with_parts(results, {part: seconds / whole for part, seconds in parts.items()})


def scaled(cell: Cell, whole: float, bare: float) -> CellResults:
    """Return a cell of which only the bare time is known, as of a training step."""
    return made_of(cell, whole, {"bare": bare})


@given(
    st.lists(st.floats(0.5, 2), min_size=1, max_size=6),
    st.lists(st.floats(-0.5, 1), min_size=3, max_size=3),
)
def test_in_every_process_the_parts_add_up_to_the_time(
    noise: list[float], shares: list[float]
) -> None:
    results = made_of(MXNET, 1.0, dict(zip(PARTS, shares, strict=True)), tuple(noise))
    account = account_of(results, TOGETHER)
    assert list(account) == [*PARTS, "rest"]
    for time, *parts in zip(results.medians(TOGETHER), *account.values(), strict=True):
        assert sum(parts) == pytest.approx(time)


@pytest.mark.parametrize("part", [*PARTS, "rest"])
@pytest.mark.parametrize("sign", [1, -1])
def test_what_one_part_adds_is_told_as_that_part_alone(part: str, sign: int) -> None:
    usual = made_of(TORCH, 1.0, PARTS)
    more = {name: seconds + 0.1 * (name == part) for name, seconds in PARTS.items()}
    cells = made_of(MXNET, 1.1, more), usual
    difference = time_difference(*cells[::sign])
    assert difference.verdict == ("slower" if sign == 1 else "faster")
    assert difference.reasons == (part,)
    assert difference.parts[part].estimate == pytest.approx(0.1 * sign, rel=0.1)
    assert difference.seconds.estimate == pytest.approx(0.1 * sign)


def test_no_reason_is_told_within_twice_the_systematic_error_or_of_equal_times() -> None:
    usual, slower = made_of(TORCH, 1.0, PARTS), made_of(MXNET, 1.1, PARTS | {"operations": 0.7})
    assert time_difference(slower, usual, errors={"torch": 0.03}).reasons == ("operations",)
    assert time_difference(slower, usual, errors={"torch": 0.06}).reasons == ()
    # Slower operations that something else makes good explain no difference.
    assert time_difference(made_of(MXNET, 1.0, PARTS | {"operations": 0.7}), usual).reasons == ()
    single_runs = made_of(MXNET, 2.0, PARTS, ONE[:1]), made_of(TORCH, 1.0, PARTS, ONE[:1])
    single = time_difference(*single_runs)
    assert (single.verdict, single.reasons) == ("too few runs", ())


def busy(results: CellResults, share: float) -> CellResults:
    """Let other programs take a share of the cores in every process of a cell."""
    return changed(results, machine_watch=MachineWatch(10.0, 2.0, share, 0.0, None, None, None))


def test_what_others_took_of_both_cells_on_an_engine_cancels() -> None:
    mxnet, torch = made_of(MXNET, 1.3, PARTS), made_of(TORCH, 1.0, PARTS)
    quiet = time_difference(mxnet, torch).ratio
    alike = time_difference(busy(mxnet, 0.4), busy(torch, 0.4)).ratio
    assert alike == quiet
    unlike = time_difference(busy(mxnet, 0.4), busy(torch, 0.1)).ratio
    assert unlike.low == pytest.approx(0.7 * quiet.low)
    assert unlike.high == pytest.approx(quiet.high)


def test_what_others_took_may_have_slowed_an_engine_with_queues_alone() -> None:
    queued = made_of(TORCH, 1.0, PARTS)
    eager = made_of(parallel("torch", "sync"), 1.9, PARTS)
    quiet = time_difference(eager, queued).ratio
    both_busy = time_difference(busy(eager, 0.4), busy(queued, 0.4)).ratio
    assert both_busy.low == pytest.approx(quiet.low)
    assert both_busy.high == pytest.approx(quiet.high / 0.6)
    # The other way round, the engine with queues is the one whose time is uncertain.
    reversed_ratio = time_difference(busy(queued, 0.4), busy(eager, 0.4)).ratio
    assert reversed_ratio.low == pytest.approx(1 / both_busy.high)
    assert reversed_ratio.high == pytest.approx(1 / both_busy.low)


def test_the_engines_of_a_framework_tell_the_systematic_error_of_its_operations() -> None:
    engines = [
        made_of(parallel("torch", engine), 1.0, {"operations": taken})
        for engine, taken in (("async", 0.6), ("sync", 0.63))
    ]
    errors = systematic_errors([*engines, made_of(MXNET, 1.0, PARTS)], TOGETHER)
    assert errors == {"torch": pytest.approx(0.03)}


def test_what_one_side_has_is_compared_with_nothing_and_impossible_parts_withhold_reasons() -> None:
    assert time_difference(scaled(MXNET, 1, 0.8), made_of(TORCH, 2, PARTS)).parts == {}
    assert list(account_of(scaled(MXNET, 1, 0.8), TOGETHER)) == ["operations", "rest"]
    assert account_of(measured(MXNET, ONE), TOGETHER) == {}
    # Operations took longer than their case.
    doubtful = time_difference(scaled(MXNET, 1.0, 1.2), scaled(TORCH, 2.0, 1.0))
    assert doubtful.reasons == ()
    assert doubtful.withheld.startswith(TOGETHER)


def test_the_order_of_an_older_comparison_s_processes_and_their_number_say_nothing() -> None:
    old = made_of(MXNET, 1.0, PARTS, (1.0, 1.02, 0.98, 1.01, 0.99))
    new = made_of(MXNET, 1.1, PARTS, (1.0, 1.01, 0.99))
    change = time_change(new, old, TOGETHER)
    turned = replace(old, results=old.results[::-1])
    assert time_change(new, turned, TOGETHER).ratio == change.ratio
    fewer = replace(old, results=old.results[:3])
    assert time_change(new, fewer, TOGETHER).ratio != change.ratio
    assert change.verdict == "slower"
    assert change.ratio.estimate == pytest.approx(1.1, rel=0.001)
    assert change.seconds.estimate == pytest.approx(0.1, rel=0.01)
    assert change.seconds.low > 0


def test_what_others_took_of_one_of_two_comparisons_widens_the_change_to_that_side() -> None:
    old, new = made_of(MXNET, 1.0, PARTS), made_of(MXNET, 1.3, PARTS)
    quiet = time_change(new, old, TOGETHER).ratio
    loaded = time_change(busy(new, 0.15), old, TOGETHER).ratio
    assert loaded.low == pytest.approx(0.85 * quiet.low)
    assert loaded.high == pytest.approx(quiet.high)
    assert time_change(busy(new, 0.15), busy(old, 0.15), TOGETHER).ratio == quiet


def save(path: Path, *cells: CellResults) -> str:
    write_json(path, comparison(*cells).as_json())
    return str(path)


def held(old: CellResults, new: CellResults) -> Difference:
    return compare_with_old(comparison(old), comparison(new))


def test_cells_that_cannot_be_compared_are_left_out_with_the_reason() -> None:
    other_size = changed(measured(TORCH, ONE), parameters={"size": 104, "rounds": 3})
    old = comparison(*USUAL.cells, measured(parallel("numpy"), ONE))
    new = comparison(failed(MXNET), other_size, measured(parallel("jax"), ONE))
    found = compare_with_old(old, new)
    assert found.changes == ()
    assert found.left_out == (
        "parallel on MXNet: failed in the new comparison (torch is not installed)",
        f"parallel on PyTorch: not the same work: size was 100 and is 104 {HINT}",
        "parallel on JAX: only in the new comparison",
        "parallel on NumPy: only in the old comparison",
    )


def test_variants_and_images_are_other_work_and_how_often_something_was_timed_is_not() -> None:
    usual = measured(TORCH, ONE)
    assert held(usual, changed(usual, parameters={"size": 100, "rounds": 5})).changes
    # Old results had no variants.
    assert held(usual, on_other_backend(usual, variants=[])).changes
    (reason,) = held(usual, on_other_backend(usual, variants=["bulk-on", "tf32"])).left_out
    assert "variants was none and is bulk-on, tf32 " in reason
    real, synthetic = (
        changed(usual, data=data) for data in ("Fashion-MNIST from /data", "synthetic images")
    )
    (reason,) = held(real, synthetic).left_out
    assert "data was real and is synthetic" in reason


def test_other_versions_machines_and_kernels_are_named_where_both_comparisons_know_theirs() -> None:
    def on(processor: str, version: str, core_type: str) -> Comparison:
        library = {"library": "OpenBLAS", "version": "0.3", "instruction_set": core_type}
        cell = on_other_backend(measured(TORCH, ONE), version=version, kernels=[library])
        return replace(comparison(cell), machine={**MACHINE, "processor": processor})

    old, new = on("one", "1.0", "Prescott"), on("another", "2.0", "Haswell")
    assert compare_with_old(old, new).environment_changes == (
        "processor: one → another",
        "torch: 1.0 → 2.0",
        "torch's kernels: OpenBLAS 0.3, Prescott kernels → OpenBLAS 0.3, Haswell kernels",
    )
    without = replace(comparison(measured(TORCH, ONE)), machine=old.machine)
    assert compare_with_old(without, old).environment_changes == ()


@pytest.mark.parametrize(
    ("factor", "percent", "status"),
    [(1.1, "5", 1), (1.1, "0", 1), (1.1, "15", 0), (1.0005, "0", 0), (0.5, "0", 0)],
)
def test_a_slow_down_fails(
    program: RunProgram, tmp_path: Path, factor: float, percent: str, status: int
) -> None:
    old = save(tmp_path / "old", *USUAL.cells)
    new = save(tmp_path / "new", measured(MXNET, ONE), measured(TORCH, times(factor)))
    done = program("diff", old, new, "--fail-if-slower", percent)
    assert done.returncode == status
    assert "2 cases compared" in done.stdout
    if status:
        assert f"1 of 2 cases became slower by more than {percent} %" in done.stderr
        assert "most of all parallel on PyTorch: on all together (× 1.10)\n" in done.stderr
    assert program("diff", old, new).returncode == 0


def test_what_can_no_longer_be_measured_fails_the_check(
    program: RunProgram, tmp_path: Path
) -> None:
    old = save(tmp_path / "old", *USUAL.cells)
    new = save(tmp_path / "new", measured(MXNET, ONE), failed(TORCH))
    assert program("diff", old, new).returncode == 0
    done = program("diff", old, new, "--fail-if-slower", "5")
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"parallel-core: what was measured in {old} no longer is: parallel on PyTorch: "
    )


def test_nothing_in_common_is_status_2(program: RunProgram, tmp_path: Path) -> None:
    old = save(tmp_path / "old", measured(MXNET, ONE))
    new = save(tmp_path / "new", measured(TORCH, ONE))
    assert_refused(program("diff", old, new), f"{old} and {new} have nothing in common: ")


LATER = json.dumps(USUAL.as_json()).replace('"parallel"', '"later"')
NONE = (
    None,
    "",
    "[]",
    "{}",
    "null",
    '{"schema": 99}',
    '{"schema": 1, "rounds": 3}',
    "\x00",
    "\ufeff{}",
    '"\\ud800"',
)


@pytest.mark.parametrize(
    "content",
    [*NONE, '{"x": NaN}', "[" * 10**5, '{"x":' * 10**5, LATER],
    ids=lambda content: repr(content)[:20],
)
def test_what_is_no_comparison_is_one_line(
    program: RunProgram, tmp_path: Path, content: str | None
) -> None:
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content)
    done = program("diff", save(tmp_path / "good", measured(MXNET, ONE)), str(bad))
    assert_refused(done, str(bad))
    assert ("holds the experiment 'later'" in done.stderr) == (content == LATER)
