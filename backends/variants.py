"""Named variants of how a framework schedules: what differs between frameworks, and between their defaults and ours.

Each variant is one value of a setting. A setting's default is the value with which most can run at the same time; for
kernels, which do not schedule but decide what there is to be scheduled, it is the fastest one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import get_args

from backends.devices import Device, DeviceKind
from backends.errors import BackendError

__all__ = [
    "BLAS_AS_SHIPPED",
    "BULK_ON",
    "COPY_ON_COMPUTE_QUEUE",
    "GRAPH_REPLAY",
    "TEMPORARY_SPACE_LOW",
    "TF32",
    "VARIANTS",
    "Variant",
    "check_device_kinds",
    "choose_variants",
]


@dataclass(frozen=True)
class Variant:
    """One value of a setting."""

    name: str
    setting: str
    found_on: Mapping[str, tuple[DeviceKind, ...]]
    """The backends that have it, and the kinds of their devices on which it makes a difference or is true."""
    meaning: str
    """What it does and what to look for in a timeline: one sentence."""
    default: bool = False
    elsewhere: str = ""
    """Why other backends and other kinds of devices do not have it."""
    not_on_sync: str | None = "queues nothing, and so has no variants of queueing"
    """Why synchronous engines do not have it: the predicate of a sentence about them. None if they do."""

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that have it, in words: `mxnet`, or `mxnet on CPUs` if its GPUs do not."""
        kinds = len(get_args(DeviceKind))
        return tuple(
            name if len(on) == kinds else f"{name} on {', '.join(kind.upper() for kind in on)}s"
            for name, on in self.found_on.items()
        )


ANY_KIND: tuple[DeviceKind, ...] = get_args(DeviceKind)

BULK_ON = Variant(
    "bulk-on",
    "bulk",
    found_on={"mxnet": ANY_KIND},
    meaning="Up to 15 operators of a backward pass are queued as one, so that no gradient is ready before the last of "
    "them: look for a few long spans in place of many, and for exchanges that begin only behind them.",
    elsewhere="PyTorch runs operators one by one",
)
TEMPORARY_SPACE_LOW = Variant(
    "temporary-space-low",
    "temporary space",
    found_on={"mxnet": ("cpu",)},
    meaning="All CPU devices share 4 pieces of scratch memory, MXNet's own default, and operators with the same piece "
    "wait for each other: look for two devices that take turns in training, and idle gaps on both.",
    elsewhere="only MXNet's CPU devices share scratch memory",
)
COPY_ON_COMPUTE_QUEUE = Variant(
    "copy-on-compute-queue",
    "copy queue",
    found_on={"mxnet": ("cpu",), "torch": ANY_KIND},
    meaning="A copy stands in the queue that computes its source, behind all that was launched there before: look for "
    "copies and computations on one queue, one after the other, and nothing under them.",
    elsewhere="MXNet's engine has workers of their own for the copies of every GPU",
)
BLAS_AS_SHIPPED = Variant(
    "blas-as-shipped",
    "kernels of products",
    found_on={"mxnet": ("cpu",)},
    meaning="MXNet's OpenBLAS of 2020 chooses its kernels by itself: for a processor that it does not know, old ones "
    "without AVX (Prescott's, or Barcelona's). Look for longer products in an unchanged order; there is no difference "
    "where it knows the processor.",
    elsewhere="only MXNet brings a library along that takes slow kernels for processors newer than itself",
    not_on_sync=None,
)
TF32 = Variant(
    "tf32",
    "matrix precision",
    found_on={"torch": ("gpu",)},
    meaning="Products and convolutions round their operands to TensorFloat-32, 10 bits of mantissa in place of 23, if "
    "the GPU has matrix units for it: look for shorter products, and for checks that miss NumPy's numbers.",
    elsewhere="only PyTorch on GPUs has a switch for it",
    not_on_sync="is the reference for numbers, and so always computes in float32",
)
GRAPH_REPLAY = Variant(
    "graph-replay",
    "issue of kernels",
    found_on={"torch": ("gpu",)},
    meaning="The kernels of a backward pass with its forward pass, and those of an update, are recorded when they are "
    "launched for the third time, and from then on issued as a CUDA graph each: look for small batches that take less "
    "time, and no gaps between their kernels.",
    elsewhere="only PyTorch can record what a function issues to a GPU",
)


def _default(instead_of: Variant, name: str, meaning: str) -> Variant:
    return replace(instead_of, name=name, meaning=meaning, default=True)


VARIANTS: tuple[Variant, ...] = (
    _default(
        BULK_ON,
        "bulk-off",
        "Every operator of a backward pass is queued by itself, so that the last layer's gradients are ready first: "
        "look for many short spans, and for exchanges that begin between them.",
    ),
    BULK_ON,
    _default(
        TEMPORARY_SPACE_LOW,
        "temporary-space-high",
        "There are 256 pieces of scratch memory, and an operator seldom waits for another one's: look for convolutions "
        "of two devices at the same time.",
    ),
    TEMPORARY_SPACE_LOW,
    Variant(
        "copy-on-own-queue",
        COPY_ON_COMPUTE_QUEUE.setting,
        found_on={"mxnet": ANY_KIND, "torch": ANY_KIND},
        meaning="A copy does not stand in the queue that computes its source but in the destination's (MXNet on CPUs) "
        "or in one for copies alone: look for copies under the computation that goes on.",
        default=True,
    ),
    COPY_ON_COMPUTE_QUEUE,
    _default(
        BLAS_AS_SHIPPED,
        "blas-for-processor",
        "MXNet's OpenBLAS is told to use AVX2 (`OPENBLAS_CORETYPE=Haswell`) where the processor has it and the library "
        "would not: look for products as fast as it can compute them.",
    ),
    BLAS_AS_SHIPPED,
    _default(
        TF32, "tf32-off", "Products and convolutions are computed in float32 throughout, as on CPUs and in NumPy."
    ),
    TF32,
    _default(
        GRAPH_REPLAY,
        "kernel-by-kernel",
        "The host issues every kernel by itself: look for gaps between kernels that take less time than that.",
    ),
    GRAPH_REPLAY,
)
"""All variants, those of a setting together and its default first."""


def choose_variants(framework: str, engine: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the variants that differ from the defaults, in the order of VARIANTS.

    Raises BackendError for a name that this framework or engine does not have, and for two variants of one setting.
    """
    if not names:
        return ()
    of_framework = [variant.name for variant in VARIANTS if framework in variant.found_on]
    if not of_framework:
        options = " ".join(f"--variant {name}" for name in names)
        raise BackendError(f"{framework} queues nothing, and so has no variants: leave out {options}")
    known = f"known for {framework}: {', '.join(of_framework)}"
    by_name = {variant.name: variant for variant in VARIANTS}
    by_setting: dict[str, Variant] = {}
    for name in names:
        variant = by_name.get(name)
        if variant is None:
            raise BackendError(f"unknown variant {name!r} ({known})")
        if framework not in variant.found_on:
            raise BackendError(f"{framework} has no variant {name!r}, for {variant.elsewhere} ({known})")
        other = by_setting.setdefault(variant.setting, variant)
        if other != variant:
            raise BackendError(f"the variants {other.name!r} and {name!r} exclude each other: choose one of them")
    against = next((variant.not_on_sync for variant in by_setting.values() if variant.not_on_sync), None)
    if engine == "sync" and against:
        raise BackendError(f"{framework}'s sync engine {against}: use --engine async")
    return tuple(variant.name for variant in VARIANTS if variant in by_setting.values() and not variant.default)


def check_device_kinds(framework: str, devices: Sequence[Device], names: Sequence[str]) -> None:
    """Raise BackendError for a variant of this framework that it does not have on one of the devices."""
    for device, variant in product(devices, VARIANTS):
        if variant.name in names and device.kind not in variant.found_on[framework]:
            raise BackendError(
                f"{framework} has no variant {variant.name!r} on {device.kind.upper()}s, for {variant.elsewhere}: "
                f"use --device-kind {variant.found_on[framework][0]}"
            )
