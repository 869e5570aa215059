"""Devices by number and by name: what they mean; `tests/golden` holds what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backends
from backends import BackendError, Device
from backends.devices import (
    choose_devices,
    cpu_devices,
    parse_device,
    parse_devices,
    same_memory,
)
from backends.host import cores_of
from tests.conftest import RunProgram

CPUS = st.builds(Device, st.just("cpu"), st.integers(1, 99))
WHOLE_GPUS = st.builds(Device, st.just("gpu"), st.integers(0, 99))
STREAMS = st.builds(Device, st.just("gpu"), st.integers(0, 99), st.integers(0, 99))
DEVICES = st.one_of(CPUS, WHOLE_GPUS, STREAMS)
NO_CODE = "no code of {} for {}".format


def chosen(kind: str, wanted: int | str, gpus: int, workers: int = 1) -> str:
    """Return the names of the devices that are chosen for MXNet, where there are some GPUs."""
    parsed = parse_devices(wanted) if isinstance(wanted, str) else wanted
    choice = choose_devices("mxnet", kind, parsed, gpus, workers)
    return " ".join(str(device) for device in choice.devices)


@given(st.lists(DEVICES, min_size=1))
def test_names_are_read_as_they_are_written(devices: list[Device]) -> None:
    names = [str(device) for device in devices]
    assert parse_devices(",".join(names)) == tuple(devices)
    assert parse_devices(" , ".join(names)) == tuple(devices)


@given(st.text(st.sampled_from("cpu:g019/ -"), max_size=9) | st.text(max_size=9))
def test_what_is_read_as_a_device_is_its_name(text: str) -> None:
    try:
        device = parse_device(text)
    except BackendError:
        return
    assert str(device) == text


@given(st.integers(1, 10**6))
def test_a_number_is_a_number(number: int) -> None:
    assert parse_devices(str(number)) == number
    assert parse_devices(f"-{number}") == -number


@pytest.mark.parametrize(
    ("kind", "wanted", "gpus", "expected"),
    [
        ("auto", 2, 0, "cpu:1 cpu:2"),
        ("auto", 2, 1, "gpu:0/0 gpu:0/1"),
        ("auto", 1, 1, "gpu:0"),
        ("auto", 2, 3, "gpu:0 gpu:1"),
        ("auto", 3, 2, "cpu:1 cpu:2 cpu:3"),
        ("gpu", 3, 1, "gpu:0/0 gpu:0/1 gpu:0/2"),
        ("cpu", 2, 2, "cpu:1 cpu:2"),
        ("auto", "gpu:1,cpu:3", 2, "gpu:1 cpu:3"),
        ("auto", "gpu:0/1,gpu:1,cpu:1", 2, "gpu:0/1 gpu:1 cpu:1"),
        ("gpu", "gpu:0/0,gpu:0/1", 1, "gpu:0/0 gpu:0/1"),
    ],
)
def test_what_is_wanted_is_chosen(kind: str, wanted: int | str, gpus: int, expected: str) -> None:
    assert chosen(kind, wanted, gpus) == expected


@given(st.lists(DEVICES, max_size=6), st.sampled_from(["auto", "cpu", "gpu"]), st.integers(0, 3))
def test_names_are_kept_or_refused(devices: list[Device], kind: str, gpus: int) -> None:
    try:
        choice = choose_devices("torch", kind, tuple(devices), gpus)
    except BackendError:
        return
    assert choice.devices == tuple(devices)
    assert len(devices) > 0
    assert len(set(devices)) == len(devices)
    for device in devices:
        assert device.kind == "cpu" or device.index < gpus
        assert kind in ("auto", device.kind)
    has_streams = any(device.stream is not None for device in devices)
    assert bool(choice.note) == has_streams


def test_cpus_stand_in_for_a_gpu_that_cannot_be_used_and_it_is_said() -> None:
    choice = choose_devices("mxnet", "auto", 2, 1, 1, NO_CODE)
    assert choice.devices == (Device("cpu", 1), Device("cpu", 2))
    assert "(no code of mxnet for 0)" in choice.note


def test_only_gpus_in_use_are_tried() -> None:
    tried_gpus: list[int] = []

    def note_index(_: str, index: int) -> str:
        """Say that there is no reason against a GPU."""
        tried_gpus.append(index)
        return ""

    named = (Device("gpu", 2), Device("cpu", 1), Device("gpu", 0))
    choose_devices("torch", "auto", named, 4, 1, note_index)
    assert tried_gpus == [0, 2]
    choose_devices("torch", "cpu", 2, 4, 1, note_index)
    assert tried_gpus == [0, 2]


@given(DEVICES, DEVICES)
def test_memory_is_shared_on_cpus_and_within_a_gpu(first: Device, second: Device) -> None:
    if first.kind == "cpu" or second.kind == "cpu":
        is_shared = first.kind == second.kind
    else:
        is_shared = first.index == second.index
    assert same_memory(first, second) == is_shared


def test_cores_are_divided_among_cpu_devices_alone() -> None:
    gpu, first_cpu, second_cpu = Device("gpu", 0), Device("cpu", 1), Device("cpu", 2)
    devices = (gpu, first_cpu, second_cpu)
    assert cpu_devices(devices) == 2
    of_gpu, of_first, of_second = cores_of(devices, 1)
    assert not of_gpu
    assert of_first
    assert of_second
    assert cores_of((gpu,), 1) == []


@pytest.mark.parametrize(
    "devices", ["cpu:2,cpu:1", ["cpu:2", "cpu:1"], (Device("cpu", 2), Device("cpu", 1))]
)
def test_a_backend_is_loaded_with_names(devices: str | list[str]) -> None:
    backend = backends.load("numpy", devices, threads_per_device=1)
    assert [str(device) for device in backend.devices] == ["cpu:2", "cpu:1"]


def test_results_say_the_names(program: RunProgram) -> None:
    command = (
        "run overlap --backend numpy --devices cpu:7,cpu:2 --size 20 --copies 1 --rounds 1 --json -"
    )
    result = json.loads(program(*command.split()).stdout)
    assert result["backend"]["devices"] == ["cpu:7", "cpu:2"]
