"""MXNet: its engine queues every operator, on CPUs and on GPUs.

Importing this module does not import mxnet.
"""

from dataclasses import replace

from backends.registry import Offer
from backends.registry.variants import (
    COPY_ON_COMPUTE_QUEUE,
    COPY_ON_OWN_QUEUE,
    KERNELS_OF_PRODUCTS,
    Variant,
)

OFFER = Offer(
    title="MXNet",
    backend="backends.mxnet.loading:load",
    variants="backends.mxnet:VARIANTS",
    installation="backends.mxnet.installation:INSTALLATION",
    kernels="backends.mxnet.kernels",
    profiler="backends.mxnet.profiler",
    group="backends.mxnet.process_group:join_mxnet",
    tried=2,
    queue="by workers of MXNet's own queue",
    finds_gpus="import mxnet; mxnet.nd.ones(1, ctx=mxnet.gpu(0)).asnumpy()",
)

BULK_ON = Variant(
    "bulk-on",
    "bulk",
    "Up to 15 operators of a backward pass are queued as one, so that no gradient is ready before "
    "the last of "
    "them: look for a few long spans in place of many, and for exchanges that begin only behind "
    "them.",
    shipped=True,
    elsewhere="PyTorch runs operators one by one",
)
TEMPORARY_SPACE_LOW = Variant(
    "temporary-space-low",
    "temporary space",
    "All CPU devices share 4 pieces of scratch memory, MXNet's own default, and operators with the "
    "same piece "
    "wait for each other: look for two devices that take turns in training, and idle gaps on both.",
    kinds=("cpu",),
    shipped=True,
    elsewhere="only MXNet's CPU devices share scratch memory",
)
BLAS_AS_SHIPPED = Variant(
    "blas-as-shipped",
    KERNELS_OF_PRODUCTS,
    "MXNet's OpenBLAS of 2020 chooses its kernels by itself: for a processor that it does not "
    "know, old ones "
    "without AVX (Prescott's, or Barcelona's). Look for longer matrix multiplications in an "
    "unchanged order; there is "
    "no difference where it knows the processor.",
    kinds=("cpu",),
    shipped=True,
    elsewhere="only MXNet brings a library along that takes slow kernels for processors newer than "
    "itself",
    not_on_sync=None,
)
VARIANTS: tuple[Variant, ...] = (
    *BULK_ON.after_default(
        "bulk-off",
        "Every operator of a backward pass is queued by itself, so that the last layer's gradients "
        "are ready "
        "first: look for many short spans, and for exchanges that begin between them.",
    ),
    *TEMPORARY_SPACE_LOW.after_default(
        "temporary-space-high",
        "There are 256 pieces of scratch memory, and an operator seldom waits for another one's: "
        "look for "
        "convolutions of two devices at the same time.",
    ),
    COPY_ON_OWN_QUEUE,
    replace(
        COPY_ON_COMPUTE_QUEUE,
        kinds=("cpu",),
        not_on_other_kinds="MXNet's engine has dedicated workers for the copies of every GPU",
    ),
    *BLAS_AS_SHIPPED.after_default(
        "blas-for-processor",
        "MXNet's OpenBLAS is set to use AVX2 (`OPENBLAS_CORETYPE=Haswell`) where the processor has "
        "it and the "
        "library would not: look for matrix multiplications as fast as it can compute them.",
    ),
)
