"""Numbers are written so that they read well, and sizes so that they are read back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.system.formatting import (
    engine_in_words,
    figure,
    kernels_in_words,
    parse_size,
    parse_sizes,
    percent,
    seconds,
    write_size,
)


def test_what_is_written() -> None:
    shares = (0.5, -0.5, -0.0001, 0.0, 1.234, 0.0142, 0.05, 0.0996)
    assert [*map(percent, shares)] == [
        "50 %",
        "−50 %",
        "0 %",
        "0 %",
        "123 %",
        "1.4 %",
        "5 %",
        "10 %",
    ]
    assert [percent(share, "+") for share in (0.5, -0.5, -0.0001)] == ["+50 %", "−50 %", "+0 %"]
    assert [*map(figure, (999.4, 999.6, -1234.5, -0.0))] == ["999", "1,000", "−1,234", "0"]
    assert [*map(seconds, (0.0, 0.02, -2e-6, 1.5))] == ["0 ms", "20.0 ms", "−2.00 μs", "1.50 s"]
    assert [*map(write_size, (4194304, 10**8, 1001, 12288))] == [
        "4 MiB",
        "100 MB",
        "1001 B",
        "12 KiB",
    ]
    assert (
        engine_in_words({"engine": "a"})
        == engine_in_words({"engine": "a", "variants": []})
        == "a engine"
    )
    assert (
        engine_in_words({"engine": "async", "variants": ["a", "b"]}) == "async engine with a and b"
    )


@pytest.mark.parametrize(
    ("library", "version", "instructions", "device", "written"),
    [
        (
            "OpenBLAS",
            "0.3.13",
            "Haswell",
            "cpu:1",
            "OpenBLAS 0.3.13, Haswell kernels: 48.7 GFLOP/s on one core",
        ),
        ("MKL", "2024.2", None, "cpu:1", "MKL 2024.2: 48.7 GFLOP/s on one core"),
        (None, None, None, "cpu:1", "matrix multiplication: 48.7 GFLOP/s on one core"),
        (None, None, None, "gpu:0", "matrix multiplication: 48.7 GFLOP/s on gpu:0"),
    ],
)
def test_kernels_are_written_as_far_as_they_are_known(
    library: str | None, version: str | None, instructions: str | None, device: str, written: str
) -> None:
    kernels = (
        [{"library": library, "version": version, "instruction_set": instructions}]
        if library
        else []
    )
    product = {"size": 592, "gflop_per_s": 48.71}
    assert (
        kernels_in_words({"devices": [device], "kernels": kernels, "product": product}) == written
    )
    # Results from before say nothing of kernels.
    assert kernels_in_words({"devices": [device]}) == ""


def test_units_are_binary_or_decimal_by_name() -> None:
    small = ("4096", "17 B", "4KiB", " 4 kib ", "1.5MiB", "0.5kB")
    assert [*map(parse_size, small)] == [4096, 17, 4096, 4096, 3 * 2**19, 500]
    assert [*map(parse_size, ("100MB", "2GB", "1GiB"))] == [10**8, 2 * 10**9, 2**30]
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
