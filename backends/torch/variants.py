"""PyTorch's variants. Importing this module does not import torch."""

from dataclasses import replace

from backends.registry.variants import COPY_ON_COMPUTE_QUEUE, COPY_ON_OWN_QUEUE, MATRIX_PRECISION, Variant

TF32 = Variant(
    "tf32",
    MATRIX_PRECISION,
    "Matrix multiplications and convolutions round operands to TensorFloat-32, with 10 bits of mantissa, not 23, if "
    "the GPU has matrix units for it: look for shorter multiplications, and for checks that miss NumPy's numbers.",
    kinds=("gpu",),
    elsewhere="only PyTorch on GPUs has a switch for it",
    not_on_sync="is the reference for numbers, and so always computes in float32",
)
GRAPH_REPLAY = Variant(
    "graph-replay",
    "issue of kernels",
    "The kernels of a backward pass with its forward pass, and those of an update, are recorded when they are "
    "launched for the third time, and from then on issued as a CUDA graph each: look for small batches that take less "
    "time, and no gaps between their kernels.",
    kinds=("gpu",),
    elsewhere="only PyTorch can record what a function issues to a GPU",
)
VARIANTS: tuple[Variant, ...] = (
    COPY_ON_OWN_QUEUE,
    COPY_ON_COMPUTE_QUEUE,
    replace(
        TF32,
        name="tf32-off",
        meaning="Matrix multiplications and convolutions are computed in float32 throughout, as on CPUs and in NumPy.",
        default=True,
    ),
    TF32,
    replace(
        GRAPH_REPLAY,
        name="kernel-by-kernel",
        meaning="The host issues every kernel by itself: look for gaps between kernels that take less time than that.",
        default=True,
    ),
    GRAPH_REPLAY,
)
