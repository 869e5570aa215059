"""MXNet's traps, most in a process of its own, with the evidence of MXNet's own profiler or of the
order of events.
"""

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

import backends
from backends.host import available_cores
from backends.profiling.chrome_trace import read_trace
from backends.profiling.slices import Slice
from tests.backends.conftest import Require
from tests.backends.protocol.arrays import computed, full
from tests.conftest import THREADS, RunPython

BEFORE = """
import os, signal, threading
from contextlib import contextmanager
import numpy as np
import backends

backend = backends.load("mxnet", **{chosen})
import mxnet
from backends.mxnet.engine import push

def ones(*shape):
    return backend.asarray(np.ones(shape, dtype=np.float32), backend.devices[0])

@contextmanager
def profiled(path):
    mxnet.profiler.set_config(filename=path, profile_imperative=True)
    mxnet.profiler.set_state("run")
    yield
    mxnet.profiler.set_state("stop")
    backend.waitall()
    mxnet.profiler.dump()
"""
InMXNet = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def in_mxnet(require: Require, run_python: RunPython) -> InMXNet:
    """Run code with MXNet's `backend` and `ones(*shape)`; it has a process of its own, for that has
    one engine.

    Further arguments are those of `backends.load`.
    """
    require("mxnet")

    def run(
        code: str, environment: Mapping[str, str] = {}, **chosen: object
    ) -> "subprocess.CompletedProcess[str]":
        arguments = {
            "devices": 1,
            "device_kind": "cpu",
            "engine": "async",
            "threads_per_device": 1,
            **chosen,
        }
        return run_python(BEFORE.format(chosen=arguments) + code, **environment)

    return run


STEPS_OF_ALL_DEVICES = 5 * 2
TRAIN_ON_TWO_DEVICES = """
from parallel_core.training.lenet import loss_and_gradients
from parallel_core.training.step import get_params

images = np.random.default_rng(0).random((256, 1, 28, 28), dtype=np.float32)
params = [get_params(backend, device) for device in backend.devices]
shards = zip(
    backend.split_and_load(images, backend.devices),
    backend.split_and_load(np.zeros(256, dtype=np.int32), backend.devices),
)
work = [(p, x, y) for p, (x, y) in zip(params, shards)]
compute = loss_and_gradients(backend.ops)

def step():
    return [backend.launch(compute, *args) for args in work]

step()
backend.waitall()
with profiled("TRACE"):
    kept = [step() for _ in range(5)]
    backend.waitall()
"""
QUEUE_HEAVY_PRODUCTS = """
first, second = backend.devices
large = np.full((1000, 1000), 1e-3, dtype=np.float32)
heavy, other = (backend.asarray(large, device) for device in backend.devices)
small = ones(50, 50)
backend.wait(backend.copy_to(small, second))
with profiled("TRACE"):
    kept = [backend.launch(backend.ops.matmul, heavy, heavy) for _ in range(20)]
    backend.wait(backend.copy_to(small, second))
    squared = backend.launch(backend.ops.matmul, other, other)
    backend.wait(backend.launch(backend.ops.matmul, squared, other))
"""
ProfileOf = Callable[..., Sequence[Slice]]


@pytest.fixture
def profile_of(in_mxnet: InMXNet, tmp_path: Path) -> ProfileOf:
    """Run a program with variants on two devices; return the slices of MXNet's profile."""

    def profile(program: str, *variants: str) -> Sequence[Slice]:
        path = tmp_path / "trace.json"
        in_mxnet(program.replace("TRACE", str(path)), devices=2, variants=variants)
        # MXNet tells each operator twice: by begin and end, and asynchronously.
        all_events = json.loads(path.read_text())["traceEvents"]
        begins_and_ends = [event for event in all_events if event["ph"] in "BE"]
        path.write_text(json.dumps(begins_and_ends))
        return read_trace(path).slices

    return profile


def longest_overlap_of_convolutions(slices: Sequence[Slice]) -> int:
    """Return for how long at most a convolution on one of two devices overlapped one on the other.

    It is not above zero if none did.
    """
    by_device: defaultdict[object, list[Slice]] = defaultdict(list)
    for operator in slices:
        if operator.name == "Convolution":
            by_device[operator.process].append(operator)
    on_first, on_second = by_device.values()
    assert len(on_first) == STEPS_OF_ALL_DEVICES
    assert len(on_second) == STEPS_OF_ALL_DEVICES
    overlaps = []
    for first, second in product(on_first, on_second):
        overlaps.append(min(first.end, second.end) - max(first.start, second.start))
    return max(overlaps)


def backward_operators(slices: Sequence[Slice]) -> Counter[str]:
    """Count the operators of backward passes: bulks by name, single ones as "_backward"."""
    counts: Counter[str] = Counter()
    for operator in slices:
        if "_backward" in operator.name:
            counts["_backward"] += 1
        elif "Bulk" in operator.name:
            counts[operator.name] += 1
    return counts


@pytest.mark.long
def test_devices_take_turns_where_scratch_memory_is_scarce_and_bulk_execution_makes_few_operators(
    profile_of: ProfileOf,
) -> None:
    scarce = profile_of(TRAIN_ON_TWO_DEVICES, "temporary-space-low")
    in_bulk = profile_of(TRAIN_ON_TWO_DEVICES, "bulk-on")

    # With MXNet's default of 4 pieces of scratch memory, no two of these convolutions ever overlap.
    assert longest_overlap_of_convolutions(scarce) <= 0
    # With as much as there is by default here, devices compute at the same time, be it in bulk.
    assert longest_overlap_of_convolutions(in_bulk) > 0

    # Up to 15 in each bulk: no gradient of it is ready before the last one is.
    assert backward_operators(in_bulk) == {"ImperativeBulk": 2 * STEPS_OF_ALL_DEVICES}
    one_by_one = backward_operators(scarce)
    assert one_by_one["_backward"] >= 15 * STEPS_OF_ALL_DEVICES
    assert one_by_one["ImperativeBulk"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("variant", "fewest", "most"), [("copy-on-own-queue", 2, 21), ("copy-on-compute-queue", 22, 22)]
)
def test_waiting_for_one_device_is_not_waiting_behind_another(
    profile_of: ProfileOf, variant: str, fewest: int, most: int
) -> None:
    """The profile ends when a copy to the second device and two products there are done.

    If the copy stands behind the twenty products on the first device, the profile has all 22.
    """
    # MXNet's own copy stands in the source's queue, and its wait for the product would in that of
    # cpu(0): either would end after the twenty products.
    slices = profile_of(QUEUE_HEAVY_PRODUCTS, variant)
    computed_products = [operator for operator in slices if operator.name == "_np_dot"]
    assert fewest <= len(computed_products) <= most


def test_a_device_s_workers_run_at_once_and_operators_use_its_share_of_cores(
    in_mxnet: InMXNet,
) -> None:
    code = """
backend.wait(backend.launch(backend.ops.add, ones(4, 4), 1.0))
before = len(os.listdir("/proc/self/task"))
backend.wait(backend.launch(backend.ops.relu, ones(2000, 2000)))
print(len(os.listdir("/proc/self/task")) - before)

met, meeting = [], threading.Barrier(2)
for x in (ones(1), ones(1)):
    push(lambda: met.append(meeting.wait(20)), x.ctx, [x])
backend.waitall()
print(*sorted(met))
"""
    environment = {"OMP_NUM_THREADS": "7"}
    completed = in_mxnet(code, environment, threads_per_device=2, workers_per_device=2)
    # OpenMP starts its team at the first parallel region: one thread fewer than it may use.
    assert completed.stdout == "1\n0 1\n"


ENGINE_IS_OURS = """
x, order = ones(1000, 1000), []
products = [backend.launch(backend.ops.matmul, x, x) for _ in range(20)]

def wait():
    backend.wait(products[-1])
    order.append("computed")

waiting = threading.Thread(target=wait)
waiting.start()
order.append("dispatched")
waiting.join()
print(*order)
"""
CORES_OF_LAUNCHES = """
all_cores = os.sched_getaffinity(0)

def cores_of_launches(backend, value):
    cores = []
    def note_cores(x):
        cores.append(os.sched_getaffinity(0))
        return x
    for device in backend.devices:
        backend.launch(note_cores, backend.asarray(value, device))
    return cores

array = np.ones(1)
parameters = (array, array)
for count in (len(all_cores) - 1, len(all_cores)):
    fewer = backends.load("mxnet", count, "cpu", "async", 1)
    workers_have_all_cores = count == len(all_cores)
    from_all = [all_cores] * count
    of_parameters = cores_of_launches(fewer, parameters)
    assert of_parameters == (list(fewer.cores) if workers_have_all_cores else from_all)
    assert cores_of_launches(fewer, array) == from_all

# A function that fails leaves the caller on its cores.
try:
    fewer.launch(lambda value: value[2], (ones(1),))
except backends.BackendError:
    assert os.sched_getaffinity(0) == all_cores
"""
CORES_OF_WORKERS = """
def cores_of_workers(backend):
    cores = {}
    for device in backend.devices:
        x = backend.asarray(np.ones(1, dtype=np.float32), device)
        def note_cores(device=device):
            cores[device] = os.sched_getaffinity(0)
        push(note_cores, x.ctx, [x])
    backend.waitall()
    return [cores[device] for device in backend.devices]

later_backend = backends.load("mxnet", 2, "cpu", "async", 1)
for loaded in (backend, later_backend):
    found = cores_of_workers(loaded)
    assert found == list(loaded.cores), (found, loaded.cores)
"""


FAILURE_THAT_NOBODY_READS = """
def fail(x):
    # The scale is below zero.
    return mxnet.np.random.normal(0, -1, x.shape, ctx=x.ctx)

kept = backend.launch(fail, ones(2))
"""


def test_in_one_process_the_engine_is_ours_workers_have_their_cores_and_a_failure_may_be_unread(
    in_mxnet: InMXNet,
) -> None:
    """One process shows all, because importing MXNet takes seconds."""
    code = ENGINE_IS_OURS
    # A core each can be told from all.
    if available_cores() > 1:
        # A model is issued from its devices' cores if workers have all.
        code += CORES_OF_WORKERS + CORES_OF_LAUNCHES
    code += FAILURE_THAT_NOBODY_READS
    environment = {"MXNET_ENGINE_TYPE": "NaiveEngine"}
    completed = in_mxnet(code, environment, devices=available_cores() + 1)
    assert completed.stdout == "dispatched computed\n"
    assert completed.stderr == ""


def test_a_process_keeps_the_variants_that_it_imported_mxnet_with(in_mxnet: InMXNet) -> None:
    code = """
print(*backend.variants)
print(backend.settings["MXNET_CPU_TEMP_COPY"], backend.settings["MXNET_EXEC_BULK_EXEC_TRAIN"])
try:
    backends.load("mxnet")
except backends.BackendError as error:
    print(error)
"""
    chosen = ("temporary-space-low", "bulk-on", "copy-on-own-queue")
    variants, settings, error = in_mxnet(code, variants=chosen).stdout.splitlines()
    # The third is a default.
    assert variants == "bulk-on temporary-space-low"
    assert settings == "4 1"
    assert (
        "already imported with MXNET_CPU_TEMP_COPY=4, and this backend needs 256: start a fresh "
        "process" in error
    )


def test_other_threads_know_numpy_s_shapes(require: Require, engine: str) -> None:
    require("mxnet")
    backend = backends.load("mxnet", 2, "cpu", engine, THREADS)
    ops = backend.ops

    def shape_of_gradient(shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the gradient of a sum, by an array of this shape."""
        copy = backend.copy_to(full(backend, 1, *shape), backend.devices[1])
        differentiate = ops.value_and_grad(lambda p: ops.total(p[0]))
        _, (gradient,) = computed(backend, differentiate, (backend.launch(ops.add, copy, 1.0),))
        return tuple(gradient.shape)

    shapes = [(0, 3), (), (2, 0, 4)]
    with ThreadPoolExecutor(1) as pool:
        shapes_of_gradients = list(pool.map(shape_of_gradient, shapes))
    assert shapes_of_gradients == shapes


def test_ctrl_c_in_a_function_that_the_engine_calls_at_once_is_passed_on(in_mxnet: InMXNet) -> None:
    code = """
x = ones(1)
try:
    push(lambda: signal.raise_signal(signal.SIGINT), x.ctx, [x])
except KeyboardInterrupt:
    print("interrupted")
print(backend.to_numpy(backend.launch(backend.ops.add, x, 1.0)))
"""
    assert in_mxnet(code, engine="sync").stdout == "interrupted\n[2.]\n"
