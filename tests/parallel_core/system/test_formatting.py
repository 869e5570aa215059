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


@pytest.mark.parametrize(
    ("found", "written"),
    [
        *((percent(0.5), "50 %"), (percent(-0.5), "−50 %"), (percent(-0.0001), "0 %"), (percent(0.0), "0 %")),
        *((figure(999.4), "999"), (figure(999.6), "1,000"), (figure(-1234.5), "−1,234"), (figure(-0.0), "0")),
        *((percent(1.234), "123 %"), (percent(0.0142), "1.4 %"), (percent(0.05), "5 %"), (percent(0.0996), "10 %")),
        *((percent(0.5, "+"), "+50 %"), (percent(-0.5, "+"), "−50 %"), (percent(-0.0001, "+"), "+0 %")),
        *((seconds(0.0), "0 ms"), (seconds(0.02), "20.0 ms"), (seconds(-2e-6), "−2.00 μs"), (seconds(1.5), "1.50 s")),
        *(
            (engine_in_words({"engine": "a"}), "a engine"),
            (engine_in_words({"engine": "a", "variants": []}), "a engine"),
        ),
        (engine_in_words({"engine": "async", "variants": ["a", "b"]}), "async engine with a and b"),
        *((write_size(4194304), "4 MiB"), (write_size(10**8), "100 MB"), (write_size(1001), "1001 B")),
        (write_size(12288), "12 KiB"),
    ],
)
def test_what_is_written(found: str, written: str) -> None:
    assert found == written


@pytest.mark.parametrize(
    ("library", "version", "instructions", "device", "written"),
    [
        ("OpenBLAS", "0.3.13", "Haswell", "cpu:1", "OpenBLAS 0.3.13, Haswell kernels: 48.7 GFLOP/s on one core"),
        ("MKL", "2024.2", None, "cpu:1", "MKL 2024.2: 48.7 GFLOP/s on one core"),
        (None, None, None, "cpu:1", "matrix multiplication: 48.7 GFLOP/s on one core"),
        (None, None, None, "gpu:0", "matrix multiplication: 48.7 GFLOP/s on gpu:0"),
    ],
)
def test_kernels_are_written_as_far_as_they_are_known(
    library: str | None, version: str | None, instructions: str | None, device: str, written: str
) -> None:
    kernels = [{"library": library, "version": version, "instruction_set": instructions}] if library else []
    product = {"size": 592, "gflop_per_s": 48.71}
    assert kernels_in_words({"devices": [device], "kernels": kernels, "product": product}) == written
    # Results from before say nothing of kernels.
    assert kernels_in_words({"devices": [device]}) == ""


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        *(("4096", 4096), ("17 B", 17), ("4KiB", 4096), (" 4 kib ", 4096), ("1.5MiB", 3 * 2**19), ("0.5kB", 500)),
        *(("100MB", 10**8), ("2GB", 2 * 10**9), ("1GiB", 2**30)),
    ],
)
def test_units_are_binary_or_decimal_by_name(text: str, sizes: int) -> None:
    assert parse_size(text) == sizes
    assert parse_sizes(f"1KiB, 4KiB..70KiB ,{text}") == (1024, 4096, 16384, 65536, sizes)


BAD = ["", " ", "MiB", "0", "0 KiB", "-4KiB", "+1", "1.5", "0.3kiB", "4 Mb it", "4KiB4", "1e6", "٤", "inf", "1_000"]


@pytest.mark.parametrize("text", BAD)
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="bytes") as raised:
        parse_size(text)
    assert repr(text) in str(raised.value)


@given(st.builds(lambda count, unit: count * unit, st.integers(1, 10**6), st.sampled_from([1, 1000, 1024, 2**30])))
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
