"""Named variants of how a framework schedules: what differs between frameworks, and between their
defaults and ours.

Each variant is one value of a setting. A setting's default is the value with which most can run at
the same time; for kernels, which do not schedule but decide what there is to be scheduled, it is
the fastest one. A backend declares its variants in a tuple that its `Offer` names, in a module that
imports no framework. What several backends have is declared here, and each takes it with the kinds
of devices that it has it on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import get_args

from backends.devices import Device, DeviceKind
from backends.errors import BackendError
from backends.registry.loading import offered

ANY_KIND: tuple[DeviceKind, ...] = get_args(DeviceKind)

KERNELS_OF_PRODUCTS = "kernels of products"
MATRIX_PRECISION = "matrix precision"
"""Settings that make a difference where matrices are multiplied and nothing else is done."""


@dataclass(frozen=True)
class Variant:
    """One value of a setting, as a backend has it."""

    name: str
    setting: str
    meaning: str
    """What it does and what to look for in a timeline: one sentence."""
    kinds: tuple[DeviceKind, ...] = ANY_KIND
    """The kinds of the backend's devices on which it makes a difference or is true."""
    default: bool = False
    elsewhere: str = ""
    """Why other backends do not have it."""
    not_on_other_kinds: str | None = None
    """Why other kinds of devices do not have it. None if it is for the same reason."""
    not_on_sync: str | None = "queues nothing, and so has no variants of queueing"
    """Why synchronous engines do not have it: the predicate of a sentence about them. None if they
    do.
    """

    def after_default(self, name: str, meaning: str) -> tuple["Variant", "Variant"]:
        """Return the default of the same setting, of which all else is true likewise, and this
        variant.
        """
        return replace(self, name=name, meaning=meaning, default=True), self


COPY_ON_OWN_QUEUE = Variant(
    "copy-on-own-queue",
    "copy queue",
    "A copy does not stand in the queue that computes its source but in the destination's (MXNet "
    "on CPUs) or in one "
    "dedicated to copies: look for copies under the computation that goes on.",
    default=True,
)
COPY_ON_COMPUTE_QUEUE = Variant(
    "copy-on-compute-queue",
    COPY_ON_OWN_QUEUE.setting,
    "A copy stands in the queue that computes its source, behind all that was launched there "
    "before: look for copies "
    "and computations on one queue, one after the other, and nothing under them.",
    elsewhere="its copies have no queue that could be another",
)


def frameworks() -> tuple[str, ...]:
    """List the backends that declare variants, by name."""
    return tuple(_declared())


def variants_of(framework: str) -> tuple[Variant, ...]:
    """Return the variants that a backend declares, those of a setting together and its default
    first.
    """
    return _declared().get(framework, ())


def all_variants() -> tuple[Variant, ...]:
    """Return every backend's variants, one of each name, those of a setting together and its
    default first.
    """
    by_setting: dict[str, dict[str, Variant]] = {}
    for variants in _declared().values():
        for variant in variants:
            by_setting.setdefault(variant.setting, {}).setdefault(variant.name, variant)
    return tuple(variant for by_name in by_setting.values() for variant in by_name.values())


def found_on(name: str) -> Mapping[str, tuple[DeviceKind, ...]]:
    """Return the backends that have a variant, and the kinds of their devices on which they do."""
    return {
        framework: variant.kinds
        for framework, variants in _declared().items()
        for variant in variants
        if variant.name == name
    }


def in_words(name: str) -> tuple[str, ...]:
    """Say which backends have a variant: `mxnet`, or `mxnet on CPUs` if its GPUs do not."""
    return tuple(
        framework
        if len(kinds) == len(ANY_KIND)
        else f"{framework} on {', '.join(kind.upper() for kind in kinds)}s"
        for framework, kinds in found_on(name).items()
    )


def choose_variants(framework: str, engine: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the variants that differ from the defaults, in the order in which they are declared.

    Raises BackendError for a name that this framework or engine does not have, and for two variants
    of one setting.
    """
    if not names:
        return ()
    own = {variant.name: variant for variant in variants_of(framework)}
    if not own:
        options = " ".join(f"--variant {name}" for name in names)
        raise BackendError(
            f"{framework} queues nothing, and so has no variants: leave out {options}"
        )
    known = f"known for {framework}: {', '.join(own)}"
    of_others = {variant.name: variant for variant in all_variants()}
    by_setting: dict[str, Variant] = {}
    for name in names:
        if name not in of_others:
            raise BackendError(f"unknown variant {name!r} ({known})")
        if name not in own:
            raise BackendError(
                f"{framework} has no variant {name!r}, for {of_others[name].elsewhere} ({known})"
            )
        other = by_setting.setdefault(own[name].setting, own[name])
        if other.name != name:
            raise BackendError(
                f"the variants {other.name!r} and {name!r} exclude each other: choose one of them"
            )
    against = next(
        (variant.not_on_sync for variant in by_setting.values() if variant.not_on_sync), None
    )
    if engine == "sync" and against:
        raise BackendError(f"{framework}'s sync engine {against}: use --engine async")
    return tuple(
        name
        for name, variant in own.items()
        if variant in by_setting.values() and not variant.default
    )


def check_device_kinds(framework: str, devices: Sequence[Device], names: Sequence[str]) -> None:
    """Raise BackendError for a variant of this framework that it does not have on one of the
    devices.
    """
    for device, variant in product(devices, variants_of(framework)):
        if variant.name in names and device.kind not in variant.kinds:
            reason = variant.not_on_other_kinds or variant.elsewhere
            raise BackendError(
                f"{framework} has no variant {variant.name!r} on {device.kind.upper()}s, for "
                f"{reason}: "
                f"use --device-kind {variant.kinds[0]}"
            )


@cache
def _declared() -> Mapping[str, tuple[Variant, ...]]:
    return {name: tuple(variants()) for name, variants in offered("variants").items()}
