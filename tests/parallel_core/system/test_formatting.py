"""Numbers are written so that they read well, and sizes so that they are read back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.system.formatting import (
    figure,
    framework_in_words,
    kernels_in_words,
    parse_size,
    parse_sizes,
    percent,
    seconds,
    visible,
    write_size,
)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.5, "50 %"),
        (-0.5, "−50 %"),
        (-0.0001, "0 %"),
        (0.0, "0 %"),
        (1.234, "123 %"),
        (0.0142, "1.4 %"),
        (0.05, "5 %"),
        (0.0996, "10 %"),
    ],
)
def test_a_share_is_written_as_percent(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(("share", "text"), [(0.5, "+50 %"), (-0.5, "−50 %"), (-0.0001, "+0 %")])
def test_a_change_is_written_with_its_sign(share: float, text: str) -> None:
    assert percent(share, "+") == text


@pytest.mark.parametrize(
    ("number", "text"), [(999.4, "999"), (999.6, "1,000"), (-1234.5, "−1,234"), (-0.0, "0")]
)
def test_a_figure_is_written_with_three_digits_or_more(number: float, text: str) -> None:
    assert figure(number) == text


@pytest.mark.parametrize(
    ("duration", "text"), [(0.0, "0 ms"), (0.02, "20.0 ms"), (-2e-6, "−2.00 μs"), (1.5, "1.50 s")]
)
def test_seconds_are_written_in_the_unit_that_suits_them(duration: float, text: str) -> None:
    assert seconds(duration) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(4194304, "4 MiB"), (10**8, "100 MB"), (1001, "1001 B"), (12288, "12 KiB")],
)
def test_a_size_is_written_in_whole_units(size: int, text: str) -> None:
    assert write_size(size) == text


@pytest.mark.parametrize(
    ("name", "engine", "scheduler", "variants", "words"),
    [
        ("torch", "async", "workers of parallel-core", [], "PyTorch 1 + our queues"),
        ("torch", "sync", "none", [], "PyTorch 1 without queues"),
        ("mxnet", "async", "MXNet's own engine", ["a", "b"], "MXNet 1 with a and b"),
    ],
)
def test_a_framework_is_written_with_whose_queues_it_uses(
    name: str, engine: str, scheduler: str, variants: list[str], words: str
) -> None:
    backend = {"name": name, "version": "1", "engine": engine, "scheduler": scheduler}
    assert framework_in_words({**backend, "variants": variants}) == words


@pytest.mark.parametrize(
    ("kernels", "device", "text"),
    [
        (
            [{"library": "OpenBLAS", "version": "0.3.13", "instruction_set": "Haswell"}],
            "cpu:1",
            "OpenBLAS 0.3.13, Haswell kernels: 48.7 GFLOP/s on one core",
        ),
        (
            [{"library": "MKL", "version": "2024.2", "instruction_set": None}],
            "cpu:1",
            "MKL 2024.2: 48.7 GFLOP/s on one core",
        ),
        ([], "cpu:1", "matrix multiplication: 48.7 GFLOP/s on one core"),
        ([], "gpu:0", "matrix multiplication: 48.7 GFLOP/s on gpu:0"),
    ],
)
def test_kernels_are_written_as_far_as_they_are_known(
    kernels: list[dict[str, str | None]], device: str, text: str
) -> None:
    product = {"size": 592, "gflop_per_s": 48.71}
    backend = {"devices": [device], "kernels": kernels, "product": product}
    assert kernels_in_words(backend) == text


def test_of_older_results_nothing_is_written_of_kernels() -> None:
    assert kernels_in_words({"devices": ["cpu:1"]}) == ""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("17 B", 17),
        ("4KiB", 4096),
        (" 4 kib ", 4096),
        ("1.5MiB", 3 * 2**19),
        ("0.5kB", 500),
        ("100MB", 10**8),
        ("2GB", 2 * 10**9),
        ("1GiB", 2**30),
    ],
)
def test_units_are_binary_or_decimal_by_name(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_sizes_are_sizes_and_ranges_in_their_order() -> None:
    assert parse_sizes("1KiB, 4KiB..70KiB ,17 B") == (1024, 4096, 16384, 65536, 17)


BAD = [
    "",
    " ",
    "MiB",
    "0",
    "0 KiB",
    "-4KiB",
    "+1",
    "1.5",
    "0.3kiB",
    "4 Mb it",
    "4KiB4",
    "1e6",
    "٤",
    "inf",
    "1_000",
]


@pytest.mark.parametrize("text", BAD)
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="bytes") as raised:
        parse_size(text)
    assert repr(text) in str(raised.value)


@given(
    st.builds(
        lambda count, unit: count * unit,
        st.integers(1, 10**6),
        st.sampled_from([1, 1000, 1024, 2**30]),
    )
)
def test_what_is_written_is_read(size: int) -> None:
    assert parse_sizes(f"{write_size(size)},{size}") == (size, size)


@given(low=st.integers(1, 10**9), high=st.integers(1, 10**9))
def test_a_range_goes_in_factors_of_four(low: int, high: int) -> None:
    if low > high:
        with pytest.raises(ValueError, match="ends below its beginning"):
            parse_sizes(f"{low}..{high}")
        return
    sizes = parse_sizes(f"{low}..{high}")
    assert sizes[0] == low
    assert all(later == 4 * earlier for earlier, later in pairwise(sizes))
    assert sizes[-1] <= high < 4 * sizes[-1]


def test_what_ends_a_line_or_turns_a_text_is_shown_and_not_done() -> None:
    unknown = "\N{REPLACEMENT CHARACTER}"
    assert visible("a\u202eb\u2028c\u2066d\u200fe\tf\n") == (
        f"a{unknown}b{unknown}c{unknown}d{unknown}e\tf\n"
    )
