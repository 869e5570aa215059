"""MXNet: its engine queues every operator, on CPUs and on GPUs."""

from backends.registry import Offer

OFFER = Offer(
    title="MXNet",
    backend="backends.mxnet.loading:load",
    class_path=lambda *_: "backends.mxnet.backend:MXNetBackend",
    variants="backends.mxnet.variants:VARIANTS",
    installation="backends.mxnet.installation:INSTALLATION",
    kernels="backends.mxnet.kernels",
    profiler="backends.mxnet.profiler",
    group="backends.mxnet.process_group:join_mxnet",
)
