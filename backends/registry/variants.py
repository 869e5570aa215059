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
from backends.registry import loading

AS_SHIPPED = "-as-shipped"
"""Ends the name of what is compared: a framework with the settings that it comes with."""

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
    shipped: bool = False
    """Whether the framework comes with this value, and the default is a better one."""
    elsewhere: str = ""
    """Why other backends do not have it."""
    not_on_other_kinds: str | None = None
    """Why other kinds of devices do not have it. None if it is for the same reason."""
    not_on_sync: str | None = "queues nothing, and so has no variants of queueing"
    """Why synchronous engines do not have it: the predicate of a sentence about them. None if they
    do.
    """

    def after_default(self, name: str, meaning: str) -> tuple["Variant", "Variant"]:
        """Return the setting's default, with another name and meaning, and this variant."""
        default = replace(self, name=name, meaning=meaning, default=True, shipped=False)
        return default, self


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
    """Return the variants that a backend declares.

    Those of a setting stand together, its default first.
    """
    return _declared().get(framework, ())


def all_variants() -> tuple[Variant, ...]:
    """Return the variants of all backends, one of each name.

    Those of a setting stand together, its default first.
    """
    variants_by_setting: dict[str, dict[str, Variant]] = {}
    for variants in _declared().values():
        for variant in variants:
            variant_by_name = variants_by_setting.setdefault(variant.setting, {})
            variant_by_name.setdefault(variant.name, variant)
    all_of_them: list[Variant] = []
    for variant_by_name in variants_by_setting.values():
        all_of_them += variant_by_name.values()
    return tuple(all_of_them)


def found_on(name: str) -> Mapping[str, tuple[DeviceKind, ...]]:
    """Return on which kinds of devices each backend has a variant, by the backend's name.

    Backends without the variant are left out.
    """
    kinds_of: dict[str, tuple[DeviceKind, ...]] = {}
    for framework, variants in _declared().items():
        for variant in variants:
            if variant.name == name:
                kinds_of[framework] = variant.kinds
    return kinds_of


def in_words(name: str) -> tuple[str, ...]:
    """Say which backends have a variant: `mxnet`, or `mxnet on CPUs` if its GPUs do not."""
    phrases = []
    for framework, kinds in found_on(name).items():
        if len(kinds) == len(ANY_KIND):
            phrases.append(framework)
        else:
            kind_names = ", ".join(kind.upper() for kind in kinds)
            phrases.append(f"{framework} on {kind_names}s")
    return tuple(phrases)


def compared_names() -> tuple[str, ...]:
    """List what can be compared: all backends, and those that come with other settings than the
    defaults once more, as `mxnet-as-shipped`.
    """
    shipped = [name for name in frameworks() if any(one.shipped for one in variants_of(name))]
    return (*loading.names(), *(name + AS_SHIPPED for name in shipped))


def is_as_shipped(compared: str) -> bool:
    """Return whether a framework as shipped is compared."""
    return compared.endswith(AS_SHIPPED)


def framework_of(compared: str) -> str:
    """Return the backend's name of what is compared: `mxnet` for `mxnet-as-shipped`."""
    return compared.removesuffix(AS_SHIPPED)


def variants_of_compared(compared: str, engine: str, kind: DeviceKind) -> tuple[str, ...]:
    """Return the variants with which something is compared, by name: none, unless it is a framework
    as shipped.
    """
    if not is_as_shipped(compared):
        return ()
    return tuple(
        variant.name
        for variant in variants_of(framework_of(compared))
        if variant.shipped
        and kind in variant.kinds
        and not (engine == "sync" and variant.not_on_sync)
    )


def title_of_compared(compared: str) -> str:
    """Return the title of what is compared: `MXNet as shipped`."""
    name = loading.title(framework_of(compared))
    return f"{name} as shipped" if is_as_shipped(compared) else name


def choose_variants(framework: str, engine: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the variants that differ from the defaults, in the order in which they are declared.

    Raises BackendError for a name that this framework or engine does not have, and for two variants
    of one setting.
    """
    if not names:
        return ()
    own_variants = {variant.name: variant for variant in variants_of(framework)}
    if not own_variants:
        options = " ".join(f"--variant {name}" for name in names)
        raise BackendError(
            f"{framework} queues nothing, and so has no variants: leave out {options}"
        )
    known = f"known for {framework}: {', '.join(own_variants)}"
    variants_of_all = {variant.name: variant for variant in all_variants()}
    chosen_by_setting: dict[str, Variant] = {}
    for name in names:
        if name not in variants_of_all:
            raise BackendError(f"unknown variant {name!r} ({known})")
        if name not in own_variants:
            reason = variants_of_all[name].elsewhere
            raise BackendError(f"{framework} has no variant {name!r}, for {reason} ({known})")
        variant = own_variants[name]
        first_choice = chosen_by_setting.setdefault(variant.setting, variant)
        if first_choice.name != name:
            raise BackendError(
                f"the variants {first_choice.name!r} and {name!r} exclude each other: choose one "
                "of them"
            )
    chosen = list(chosen_by_setting.values())
    if engine == "sync":
        for variant in chosen:
            if variant.not_on_sync:
                raise BackendError(
                    f"{framework}'s sync engine {variant.not_on_sync}: use --engine async"
                )
    return tuple(
        name for name, variant in own_variants.items() if variant in chosen and not variant.default
    )


def check_device_kinds(framework: str, devices: Sequence[Device], names: Sequence[str]) -> None:
    """Raise BackendError if one of the devices cannot have one of the named variants."""
    chosen = [variant for variant in variants_of(framework) if variant.name in names]
    for device, variant in product(devices, chosen):
        if device.kind not in variant.kinds:
            reason = variant.not_on_other_kinds or variant.elsewhere
            raise BackendError(
                f"{framework} has no variant {variant.name!r} on {device.kind.upper()}s, for "
                f"{reason}: use --device-kind {variant.kinds[0]}"
            )


@cache
def _declared() -> Mapping[str, tuple[Variant, ...]]:
    """Return the variants that backends declare, by the name of the backend."""
    return {name: tuple(variants()) for name, variants in loading.offered("variants").items()}
