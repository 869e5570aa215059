"""Copies by way of page-locked buffers: in pieces, and no buffer is used before the GPU is done with it."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

BYTES = 64
SHAPES = st.lists(st.integers(0, 7), max_size=3)
DTYPES = st.sampled_from(["float32", "float64", "uint8", "bool", "int64"])


@given(st.lists(st.tuples(SHAPES, DTYPES, st.booleans(), st.booleans()), max_size=6), st.integers(0, 99))
def test_arrays_of_any_shape_arrive_and_come_back(
    require: Callable[[str], None], copies: list[tuple[list[int], str, bool, bool]], seed: int
) -> None:
    require("torch")
    import torch as real

    from backends.torch.cuda.copies import _Staging as Staging
    from tests.backends.torch.cuda.made_up_cuda import MadeUpTorch

    torch = MadeUpTorch(1, seed)
    staging, stream = Staging(torch, buffers=3, piece_bytes=BYTES), torch.cuda.Stream(0)
    for shape, dtype, transposed, transposed_out in copies:
        x = torch.tensor(real.arange(real.Size(shape).numel()).reshape(shape).to(getattr(real, dtype)).numpy())
        x = x.mT if transposed and x.ndim > 1 else x
        with torch.cuda.stream(stream):
            there, back = torch.empty_like(x, device="cuda:0"), torch.empty_like(x)
            there = there.mT.contiguous().mT if transposed_out and x.ndim > 1 else there
            staging.to_gpu(there, x)
            staging.to_host(back, there)
        assert real.equal(back, x)
    assert torch.cuda.races == []
    assert staging._allocated <= 3
