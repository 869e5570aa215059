"""`parallel-core diff`: what changed between two saved comparisons, and when that fails a check."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from parallel_core.comparison.cells import Comparison
from parallel_core.comparison.difference import compare_with_old
from tests.conftest import RunProgram
from tests.parallel_core.comparison.made_up import (
    ONE,
    changed,
    comparison,
    failed,
    measured,
    on_other_backend,
    parallel,
    times,
)

HINT = "(compare --like OLD does the work of OLD)"
MXNET, TORCH = parallel("mxnet"), parallel("torch")


def save(found: Comparison, folder: Path) -> str:
    folder.mkdir()
    (folder / "comparison.json").write_text(json.dumps(found.as_json()))
    return str(folder)


def test_every_case_is_held_against_what_it_was() -> None:
    old = comparison(measured(MXNET, ONE), measured(TORCH, ONE))
    new = comparison(measured(MXNET, times(1.1)), measured(TORCH, times(0.999)))
    slower, same = compare_with_old(old, new).changes
    assert (slower.cell, slower.verdict) == (MXNET, "slower")
    assert slower.ratio.estimate == pytest.approx(1.1)
    assert (same.cell, same.verdict) == (TORCH, "no difference shown")


def test_cells_that_cannot_be_compared_are_left_out_with_the_reason() -> None:
    other_size = changed(measured(TORCH, ONE), parameters={"size": 104, "rounds": 3})
    old = comparison(measured(MXNET, ONE), measured(TORCH, ONE), measured(parallel("numpy"), ONE))
    new = comparison(failed(MXNET), other_size, measured(parallel("jax"), ONE))
    found = compare_with_old(old, new)
    assert found.changes == ()
    assert found.left_out == (
        "parallel on mxnet async: failed in the new comparison (torch is not installed)",
        f"parallel on torch async: not the same work: size was 100 and is 104 {HINT}",
        "parallel on jax async: only in the new comparison",
        "parallel on numpy async: only in the old comparison",
    )


def test_variants_are_other_work_and_old_results_had_none() -> None:
    old, new = measured(MXNET, ONE), measured(MXNET, times(1.1))

    assert compare_with_old(comparison(old), comparison(on_other_backend(new, variants=[]))).changes
    variants = comparison(on_other_backend(new, variants=["bulk-on", "temporary-space-low"]))
    found = compare_with_old(comparison(old), variants)
    assert found.changes == ()
    assert found.left_out == (
        f"{MXNET}: not the same work: variants was none and is bulk-on, temporary-space-low {HINT}",
    )


def test_how_often_something_was_timed_may_differ_and_images_may_not() -> None:
    one = measured(TORCH, ONE)
    again = changed(one, parameters={"size": 100, "rounds": 5})
    assert compare_with_old(comparison(one), comparison(again)).changes
    real, made_up = (comparison(changed(one, data=data)) for data in ("Fashion-MNIST from /data", "synthetic images"))
    (reason,) = compare_with_old(real, made_up).left_out
    assert "data was real and is synthetic" in reason


def test_other_versions_machines_and_kernels_are_named_where_both_comparisons_know_theirs() -> None:
    def on(processor: str, version: str, core_type: str) -> Comparison:
        library = {"library": "OpenBLAS", "version": "0.3.13", "instruction_set": core_type, "threads": 1}
        found = comparison(on_other_backend(measured(TORCH, ONE), version=version, kernels=[library]))
        return replace(found, machine={**found.machine, "processor": processor})

    old, new = on("one", "1.0", "Prescott"), on("another", "2.0", "Haswell")
    assert compare_with_old(old, new).environment_changes == (
        "processor: one → another",
        "torch: 1.0 → 2.0",
        "torch's kernels: OpenBLAS 0.3.13, Prescott kernels → OpenBLAS 0.3.13, Haswell kernels",
    )
    without = replace(comparison(measured(TORCH, ONE)), machine=old.machine)
    assert compare_with_old(without, old).environment_changes == ()


@pytest.mark.parametrize(
    ("factor", "percent", "status"),
    [(1.1, "5", 1), (1.1, "0", 1), (1.1, "15", 0), (1.0005, "0", 0), (0.5, "0", 0)],
)
def test_the_check_fails_where_a_larger_slow_down_is_shown(
    program: RunProgram, tmp_path: Path, factor: float, percent: str, status: int
) -> None:
    old = save(comparison(measured(MXNET, ONE), measured(TORCH, ONE)), tmp_path / "old")
    new = save(comparison(measured(MXNET, ONE), measured(TORCH, times(factor))), tmp_path / "new")
    done = program("diff", old, new, "--fail-if-slower", percent)
    assert done.returncode == status
    assert "2 cases compared" in done.stdout
    if status:
        assert done.stderr == (
            f"parallel-core: 1 of 2 cases became slower by more than {percent} %, "
            "most of all parallel on torch async: on all together (× 1.10)\n"
        )
    assert program("diff", old, new).returncode == 0


@pytest.mark.parametrize("command", ["diff", "report"])
def test_an_experiment_of_another_version_is_one_line_and_status_2(
    program: RunProgram, tmp_path: Path, command: str
) -> None:
    found = comparison(measured(MXNET, ONE)).as_json()
    cell = found["cells"][0]
    for one in (cell, *cell["results"]):
        one["experiment"] = "later"
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps(found))
    arguments = [str(path)] * (2 if command == "diff" else 1)
    done = program(command, *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "holds the experiment 'later', which is not known here" in done.stderr


NONE = (None, "", "[]", "{}", "null", '{"schema": 99}', '{"schema": 1, "rounds": 3}', "\x00", "\ufeff{}", '"\\ud800"')


@pytest.mark.parametrize(
    "content", [*NONE, '{"x": NaN}', "[" * 10**5, '{"x":' * 10**5], ids=lambda content: repr(content)[:20]
)
def test_what_is_no_comparison_is_one_line_and_status_2(
    program: RunProgram, tmp_path: Path, content: str | None
) -> None:
    good = save(comparison(measured(MXNET, ONE)), tmp_path / "good")
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content)
    done = program("diff", good, str(bad))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(bad) in done.stderr


def test_json_has_standard_output_to_itself_and_nothing_in_common_is_one_line_and_status_2(
    program: RunProgram, tmp_path: Path
) -> None:
    old = save(comparison(measured(MXNET, ONE)), tmp_path / "old")
    slow = save(comparison(measured(MXNET, times(2))), tmp_path / "slow")
    (change,) = json.loads(program("diff", old, slow, "--json", "-").stdout)["changes"]
    assert (change["verdict"], change["backend"], round(change["ratio"], 3)) == ("slower", "mxnet", 2)
    new = save(comparison(measured(TORCH, ONE)), tmp_path / "new")
    done = program("diff", old, new)
    assert done.returncode == 2
    assert done.stderr == (
        f"parallel-core: {old} and {new} have nothing in common: parallel on torch async: only in the new comparison\n"
    )


def test_what_can_no_longer_be_measured_fails_the_check(program: RunProgram, tmp_path: Path) -> None:
    old = save(comparison(measured(MXNET, ONE), measured(TORCH, ONE)), tmp_path / "old")
    new = save(comparison(measured(MXNET, ONE), failed(TORCH)), tmp_path / "new")
    assert program("diff", old, new).returncode == 0
    done = program("diff", old, new, "--fail-if-slower", "5")
    assert done.returncode == 1
    assert done.stderr.startswith(f"parallel-core: what was measured in {old} no longer is: parallel on torch async: ")


@pytest.mark.parametrize("limit", ["-1", "nan", "inf", "much"])
def test_a_limit_that_is_no_percentage_is_one_line_and_status_2(program: RunProgram, limit: str) -> None:
    done = program("diff", "old", "new", f"--fail-if-slower={limit}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not zero or a positive number" in done.stderr
