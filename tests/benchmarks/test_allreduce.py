"""What the allreduce benchmark concludes from times; none is measured here."""

import pytest

from benchmarks import allreduce
from benchmarks.harness.side_by_side import Measured


def test_cases_of_allreduce_are_found_by_algorithm_in_the_order_of_sizes() -> None:
    one = Measured({"book, 1": (1.0,), "book, copying, 1": (2.0,), "book, 2": (3.0,)}, {}, {})
    assert allreduce.by_size([one, one], "book", {"4KiB": 1, "1MB": 2}) == {"4KiB": [1.0, 1.0], "1MB": [3.0, 3.0]}
    with pytest.raises(ValueError, match="shorter"):
        allreduce.by_size([one], "book, copying", {"4KiB": 1, "1MB": 2})


def test_targets_of_allreduce_point_the_right_way() -> None:
    names = ["torch, gloo, 2 processes", "mxnet, kvstore device", "mxnet, kvstore local"]
    names += [f"{name}, ours, {case}" for name in ("torch", "mxnet") for case in ("native", "star", "plain copy")]
    ends = ("", ", transfers that copy")
    names += ["mxnet, the book's loop"]
    names += [f"torch, the book's loop{end}{threads}" for end in ends for threads in ("", ", 2 threads")]
    seconds = {name: {"4KiB": [50e-6] * 3, "100MB": [0.1] * 3} for name in names}
    seconds["torch, ours, native"] = {"4KiB": [90e-6] * 3, "100MB": [0.01] * 3}
    seconds["torch, ours, plain copy"] = {"4KiB": [1e-6] * 3, "100MB": [0.008] * 3}
    held = {finding.name: finding for finding in allreduce.targets(seconds, "100MB") if finding.target}
    ratio = held["100MB: torch, ours, native / torch, the book's loop, transfers that copy"]
    share = held["100MB: torch, ours, native: share of the copy-bound limit"]
    slower = held["4KiB: torch, ours, native − torch, ours, star"]
    assert (ratio.interval.estimate, ratio.verdict) == (pytest.approx(10), "met")
    assert (share.interval.estimate, share.verdict) == (pytest.approx(80), "met")
    assert (slower.interval.estimate, slower.verdict) == (pytest.approx(40), "missed")
    assert held["100MB: mxnet, ours, native / mxnet, kvstore device"].verdict == "missed"
