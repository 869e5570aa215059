"""Variants: which can be chosen, and what each does to the order in which a framework works."""

import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import Backend, BackendError
from backends.devices import Device
from backends.registry.variants import (
    all_variants,
    check_device_kinds,
    choose_variants,
    compared_names,
    framework_of,
    frameworks,
    variants_of,
    variants_of_compared,
)
from tests.backends.protocol.arrays import full

ON_COMPUTE_QUEUE = "copy-on-compute-queue"


@pytest.mark.parametrize(
    ("framework", "name", "device"),
    [
        ("mxnet", ON_COMPUTE_QUEUE, Device("cpu", 1)),
        ("mxnet", "temporary-space-high", Device("cpu", 1)),
        ("torch", "tf32", Device("gpu", 0)),
        ("torch", "graph-replay", Device("gpu", 0)),
    ],
)
def test_a_variant_of_one_kind_of_device_is_had_there(
    framework: str, name: str, device: Device
) -> None:
    check_device_kinds(framework, [device], [name])


@given(st.lists(st.sampled_from([variant.name for variant in variants_of("mxnet")]), max_size=8))
def test_what_differs_from_the_defaults_is_kept_in_one_order(names: list[str]) -> None:
    named = [variant for variant in variants_of("mxnet") if variant.name in names]
    settings = {variant.setting for variant in named}
    if len(settings) < len(named):
        with pytest.raises(BackendError):
            choose_variants("mxnet", "async", names)
    else:
        expected = tuple(variant.name for variant in named if not variant.default)
        assert choose_variants("mxnet", "async", names) == expected


def test_kernels_can_be_chosen_on_both_engines() -> None:
    for engine in ("async", "sync"):
        assert choose_variants("mxnet", engine, ["blas-as-shipped"]) == ("blas-as-shipped",)


def test_a_framework_as_shipped_is_compared_with_the_values_that_it_comes_with() -> None:
    assert "mxnet-as-shipped" in compared_names()
    assert "torch-as-shipped" not in compared_names()
    assert framework_of("mxnet-as-shipped") == framework_of("mxnet") == "mxnet"
    assert variants_of_compared("mxnet", "async", "cpu") == ()
    on_cpus = variants_of_compared("mxnet-as-shipped", "async", "cpu")
    assert on_cpus == ("bulk-on", "temporary-space-low", "blas-as-shipped")
    assert choose_variants("mxnet", "async", on_cpus) == on_cpus, "none of them is a default"
    assert variants_of_compared("mxnet-as-shipped", "sync", "cpu") == ("blas-as-shipped",)
    assert variants_of_compared("mxnet-as-shipped", "async", "gpu") == ("bulk-on",)


def test_every_setting_has_a_default_that_comes_first_and_a_reason_why_others_lack_the_rest() -> (
    None
):
    assert set(frameworks()) <= set(backends.names())
    variants_of_each = [variants_of(framework) for framework in frameworks()]
    for variants in (all_variants(), *variants_of_each):
        # Each setting has two variants, which stand together.
        defaults, others = variants[::2], variants[1::2]
        settings = [variant.setting for variant in defaults]
        assert [variant.setting for variant in others] == settings
        assert len(set(settings)) == len(settings)
        assert all(variant.default for variant in defaults)
        for variant in others:
            assert not variant.default
            assert variant.elsewhere


@pytest.fixture(params=[1, 2])
def on_compute_queue(request: pytest.FixtureRequest, require: Callable[[str], None]) -> Backend:
    """PyTorch with copies on the compute queue of their source, which one or two workers serve."""
    require("torch")
    return backends.load("torch", 2, "cpu", "async", 1, request.param, [ON_COMPUTE_QUEUE])


def occupy(backend: Backend, device: int, gate: threading.Event) -> None:
    """Give every worker of a device a task that lasts until the gate is opened."""
    for _ in range(backend.workers_per_device):
        backend.launch(lambda _: gate.wait(), full(backend, 1, 2, device=device))


@pytest.mark.parametrize("into", ["buffer", "new memory"])
@pytest.mark.parametrize("occupied", [0, 1])
def test_a_copy_stands_behind_the_computation_of_its_source_and_of_no_other(
    on_compute_queue: Backend, gate: threading.Event, occupied: int, into: str
) -> None:
    backend = on_compute_queue
    source, destination = 0, 1
    x = full(backend, 1, 2, device=source)
    buffer = full(backend, 1, 2, device=destination) if into == "buffer" else None
    occupy(backend, occupied, gate)
    copy = backend.copy_to(x, backend.devices[destination], buffer)
    if occupied == source:
        # Long enough for a copy that nothing holds back.
        time.sleep(0.1)
        assert "pending" in repr(copy)
        gate.set()
    assert backend.to_numpy(copy).sum() == 2
    # Only the source's computation holds it back.
    assert gate.is_set() == (occupied == source)


@pytest.mark.parametrize("copies_a_tuple", [False, True])
def test_what_is_launched_with_the_copy_is_the_destination_s_work(
    on_compute_queue: Backend, gate: threading.Event, copies_a_tuple: bool
) -> None:
    backend = on_compute_queue
    source, destination = 0, 1
    x = full(backend, 1, 2, device=source)
    if copies_a_tuple:
        copy = backend.copy_to((x, x), backend.devices[destination])[0]
    else:
        copy = backend.copy_to(x, backend.devices[destination])
    backend.wait(copy)
    occupy(backend, source, gate)
    increased = backend.launch(backend.ops.add, copy, 1.0)
    assert backend.to_numpy(increased).tolist() == [2, 2]
    assert not gate.is_set()
