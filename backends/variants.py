"""Named variants of how a framework schedules: what differs between frameworks, and between their defaults and ours.

Each variant is one value of a setting. A setting's default is the value with which most can run at the same time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from backends.devices import DeviceKind
from backends.errors import BackendError

__all__ = [
    "BULK_ON",
    "COPY_ON_COMPUTE_QUEUE",
    "GRAPH_REPLAY",
    "TEMPORARY_SPACE_LOW",
    "TF32",
    "VARIANTS",
    "Variant",
    "check_device_kind",
    "choose_variants",
]


@dataclass(frozen=True)
class Variant:
    """One value of a setting. All variants are of asynchronous engines."""

    name: str
    setting: str
    default: bool
    found_on: Mapping[str, tuple[DeviceKind, ...]]
    """The backends that have it, and the kinds of their devices on which it makes a difference or is true."""
    meaning: str
    """What it does and what to look for in a timeline: one sentence."""
    elsewhere: str = ""
    """Why other backends and other kinds of devices do not have it."""
    not_on_sync: str = "queues nothing, and so has no variants"
    """Why synchronous engines do not have it: the predicate of a sentence about them."""

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that have it, in words: `mxnet`, or `mxnet on CPUs` if its GPUs do not."""
        kinds = len(get_args(DeviceKind))
        return tuple(
            name if len(on) == kinds else f"{name} on {', '.join(kind.upper() for kind in on)}s"
            for name, on in self.found_on.items()
        )


ANY_KIND: tuple[DeviceKind, ...] = get_args(DeviceKind)
ONE_BY_ONE = "PyTorch runs operators one by one"
ONLY_TORCH_RECORDS = "only PyTorch can record what a function issues to a GPU"
ONLY_TORCH_SWITCHES = "only PyTorch on GPUs has a switch for it"
IS_REFERENCE = "is the reference for numbers, and so always computes in float32"
ONLY_MXNET_SHARES = "only MXNet's CPU devices share scratch memory"

BULK_ON = Variant(
    "bulk-on",
    "bulk",
    default=False,
    found_on={"mxnet": ANY_KIND},
    meaning="Up to 15 operators of a backward pass are queued as one, so that no gradient is ready before the last of "
    "them: look for a few long spans in place of many, and for exchanges that begin only behind them.",
    elsewhere=ONE_BY_ONE,
)
TEMPORARY_SPACE_LOW = Variant(
    "temporary-space-low",
    "temporary space",
    default=False,
    found_on={"mxnet": ("cpu",)},
    meaning="All CPU devices share 4 pieces of scratch memory, MXNet's own default, and operators with the same piece "
    "wait for each other: look for two devices that take turns in training, and idle gaps on both.",
    elsewhere=ONLY_MXNET_SHARES,
)
COPY_ON_COMPUTE_QUEUE = Variant(
    "copy-on-compute-queue",
    "copy queue",
    default=False,
    found_on={"mxnet": ("cpu",), "torch": ANY_KIND},
    meaning="A copy stands in the queue that computes its source, behind all that was launched there before: look for "
    "copies and computations on one queue, one after the other, and nothing under them.",
    elsewhere="MXNet's engine has workers of their own for the copies of every GPU",
)
TF32 = Variant(
    "tf32",
    "matrix precision",
    default=False,
    found_on={"torch": ("gpu",)},
    meaning="Products and convolutions round their operands to TensorFloat-32, 10 bits of mantissa in place of 23, if "
    "the GPU has matrix units for it: look for shorter products, and for checks that miss NumPy's numbers.",
    elsewhere=ONLY_TORCH_SWITCHES,
    not_on_sync=IS_REFERENCE,
)
GRAPH_REPLAY = Variant(
    "graph-replay",
    "issue of kernels",
    default=False,
    found_on={"torch": ("gpu",)},
    meaning="The kernels of a backward pass with its forward pass, and those of an update, are recorded when they are "
    "launched for the third time, and from then on issued as a CUDA graph each: look for small batches that take less "
    "time, and no gaps between their kernels.",
    elsewhere=ONLY_TORCH_RECORDS,
)

VARIANTS: tuple[Variant, ...] = (
    Variant(
        "bulk-off",
        "bulk",
        default=True,
        found_on={"mxnet": ANY_KIND},
        meaning="Every operator of a backward pass is queued by itself, so that the last layer's gradients are ready "
        "first: look for many short spans, and for exchanges that begin between them.",
        elsewhere=ONE_BY_ONE,
    ),
    BULK_ON,
    Variant(
        "temporary-space-high",
        "temporary space",
        default=True,
        found_on={"mxnet": ("cpu",)},
        meaning="There are 256 pieces of scratch memory, and an operator seldom waits for another one's: look for "
        "convolutions of two devices at the same time.",
        elsewhere=ONLY_MXNET_SHARES,
    ),
    TEMPORARY_SPACE_LOW,
    Variant(
        "copy-on-own-queue",
        "copy queue",
        default=True,
        found_on={"mxnet": ANY_KIND, "torch": ANY_KIND},
        meaning="A copy does not stand in the queue that computes its source but in the destination's (MXNet on CPUs) "
        "or in one for copies alone: look for copies under the computation that goes on.",
    ),
    COPY_ON_COMPUTE_QUEUE,
    Variant(
        "tf32-off",
        "matrix precision",
        default=True,
        found_on={"torch": ("gpu",)},
        meaning="Products and convolutions are computed in float32 throughout, as on CPUs and in NumPy.",
        elsewhere=ONLY_TORCH_SWITCHES,
        not_on_sync=IS_REFERENCE,
    ),
    TF32,
    Variant(
        "kernel-by-kernel",
        "issue of kernels",
        default=True,
        found_on={"torch": ("gpu",)},
        meaning="The host issues every kernel by itself: look for gaps between kernels that take less time than that.",
        elsewhere=ONLY_TORCH_RECORDS,
    ),
    GRAPH_REPLAY,
)
"""All variants, those of a setting together and its default first."""


def choose_variants(framework: str, engine: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the variants that differ from the defaults, in the order of VARIANTS.

    Raises BackendError for a name that this framework or engine has not, and for two variants of one setting.
    """
    if not names:
        return ()
    of_framework = [variant.name for variant in VARIANTS if framework in variant.found_on]
    if not of_framework:
        raise BackendError(f"{framework} queues nothing, and so has no variants: leave out {_option(names)}")
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
    if engine == "sync":
        first = next(iter(by_setting.values()))
        raise BackendError(f"{framework}'s sync engine {first.not_on_sync}: use --engine async")
    return tuple(variant.name for variant in VARIANTS if variant in by_setting.values() and not variant.default)


def check_device_kind(framework: str, kind: DeviceKind, names: Sequence[str]) -> None:
    """Raise BackendError for a variant that this framework, which has it, has not on devices of this kind."""
    for variant in VARIANTS:
        if variant.name in names and kind not in variant.found_on[framework]:
            raise BackendError(
                f"{framework} has no variant {variant.name!r} on {kind.upper()}s, for {variant.elsewhere}: "
                f"use --device-kind {variant.found_on[framework][0]}"
            )


def _option(names: Sequence[str]) -> str:
    return " ".join(f"--variant {name}" for name in names)
