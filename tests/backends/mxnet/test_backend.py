"""MXNet's traps, most in a process of its own, with the evidence of MXNet's own profiler or of the order of events."""

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backends
from backends.host import available_cores
from tests.backends.mxnet.conftest import InMXNet
from tests.conftest import THREADS

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
mxnet.profiler.set_config(filename="TRACE", profile_imperative=True)
mxnet.profiler.set_state("run")
kept = [step() for _ in range(5)]
backend.waitall()
mxnet.profiler.set_state("stop")
mxnet.profiler.dump()
"""


QUEUE_HEAVY_PRODUCTS = """
first, second = backend.devices
heavy, other = (backend.asarray(np.full((1000, 1000), 1e-3, dtype=np.float32), device) for device in backend.devices)
small = ones(50, 50)
backend.wait(backend.copy_to(small, second))
mxnet.profiler.set_config(filename="TRACE", profile_imperative=True)
mxnet.profiler.set_state("run")
kept = [backend.launch(backend.ops.matmul, heavy, heavy) for _ in range(20)]
backend.wait(backend.copy_to(small, second))
backend.wait(backend.launch(backend.ops.matmul, backend.launch(backend.ops.matmul, other, other), other))
mxnet.profiler.set_state("stop")
backend.waitall()
mxnet.profiler.dump()
"""


Events = list[dict[str, Any]]
ProfileOf = Callable[..., Events]


@pytest.fixture
def profile_of(in_mxnet: InMXNet, tmp_path: Path) -> ProfileOf:
    """Run a program with variants; return the events of its profile that began or ended."""

    def profile(program: str, *variants: str) -> Events:
        path = tmp_path / "trace.json"
        in_mxnet(program.replace("TRACE", str(path)), devices=2, variants=variants)
        return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] in "BE"]

    return profile


def overlap_of_convolutions(events: Events) -> float:
    """Return for how long at most a convolution on one of the two devices overlapped one on the other."""
    begun: dict[tuple[int, int], float] = {}
    spans: dict[int, list[tuple[float, float]]] = {}
    for event in events:
        if event["name"] == "Convolution":
            thread = event["pid"], event["tid"]
            if event["ph"] == "B":
                begun[thread] = event["ts"]
            else:
                spans.setdefault(event["pid"], []).append((begun.pop(thread), event["ts"]))
    first, second = spans.values()
    assert len(first) == len(second) == 10
    return max(min(end, until) - max(start, since) for start, end in first for since, until in second)


def backward_operators(events: Events) -> Counter[str]:
    """Count the operators of backward passes, in bulk and by themselves."""
    begun = [str(event["name"]) for event in events if event["ph"] == "B"]
    return Counter(name.partition("_backward")[1] or name for name in begun if "_backward" in name or "Bulk" in name)


@pytest.mark.long
def test_devices_take_turns_where_scratch_memory_is_scarce(profile_of: ProfileOf) -> None:
    events = profile_of(TRAIN_ON_TWO_DEVICES, "temporary-space-low")
    # With MXNet's default of 4 pieces of scratch memory, no two of these convolutions ever overlap.
    assert overlap_of_convolutions(events) <= 0
    # Not in bulk: that is another setting.
    operators = backward_operators(events)
    assert operators["_backward"] >= 15 * STEPS_OF_ALL_DEVICES
    assert operators["ImperativeBulk"] == 0


@pytest.mark.long
def test_bulk_execution_makes_few_operators_of_a_backward_pass(profile_of: ProfileOf) -> None:
    events = profile_of(TRAIN_ON_TWO_DEVICES, "bulk-on")
    # Up to 15 in each: no gradient of a bulk is ready before the last one is.
    assert backward_operators(events) == {"ImperativeBulk": 2 * STEPS_OF_ALL_DEVICES}
    # Forward, with as much scratch memory as there is by default, devices compute at the same time.
    assert overlap_of_convolutions(events) > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("variant", "fewest", "most"), [("copy-on-own-queue", 2, 21), ("copy-on-compute-queue", 22, 22)]
)
def test_waiting_for_one_device_is_not_waiting_behind_another(
    profile_of: ProfileOf, variant: str, fewest: int, most: int
) -> None:
    # MXNet's own copy stands in the source's queue, and its wait for the product would in that of cpu(0): either would
    # end after the twenty products.
    events = profile_of(QUEUE_HEAVY_PRODUCTS, variant)
    assert fewest <= sum(event["name"] == "_np_dot" and event["ph"] == "E" for event in events) <= most


THREADS_OF_A_BIG_OPERATOR = """
backend.wait(backend.launch(backend.ops.add, ones(4, 4), 1.0))
before = len(os.listdir("/proc/self/task"))
backend.wait(backend.launch(backend.ops.relu, ones(2000, 2000)))
print(len(os.listdir("/proc/self/task")) - before)
"""


def test_a_device_s_operators_use_its_share_of_cores(in_mxnet: InMXNet) -> None:
    # OpenMP starts its team at the first parallel region: one thread fewer than it may use.
    assert int(in_mxnet(THREADS_OF_A_BIG_OPERATOR, threads=2, OMP_NUM_THREADS="7").stdout) == 1


WAIT_IN_A_THREAD = """
x, order = ones(1000, 1000), []
made = [backend.launch(backend.ops.matmul, x, x) for _ in range(20)]
waiting = threading.Thread(target=lambda: (backend.wait(made[-1]), order.append("computed")))
waiting.start()
order.append("dispatched")
waiting.join()
print(*order)
"""


def test_the_engine_is_ours_whatever_the_environment_says(in_mxnet: InMXNet) -> None:
    done = in_mxnet(WAIT_IN_A_THREAD, MXNET_ENGINE_TYPE="NaiveEngine")
    assert done.stdout == "dispatched computed\n"
    assert "NaiveEngine" not in done.stderr


ISSUE_FOR_EACH_DEVICE = """
before, cores = os.sched_getaffinity(0), len(os.sched_getaffinity(0))

def where(value):
    found.append(os.sched_getaffinity(0))
    return value

for count in (cores - 1, cores):
    backend = backends.load("mxnet", count, "cpu", "async", 1)
    own = list(backend.cores) if count == cores else [before] * count
    for parameters, expected in (((np.ones(1), np.ones(1)), own), (np.ones(1), [before] * count)):
        found = []
        for device in backend.devices:
            backend.launch(where, backend.asarray(parameters, device))
        assert found == expected, (found, expected)
try:
    backend.launch(lambda value: value[2], (ones(1),))
except backends.BackendError:
    assert os.sched_getaffinity(0) == before
"""
SEVERAL_CORES = pytest.mark.skipif(available_cores() < 2, reason="a core each can be told from all")


@SEVERAL_CORES
def test_a_model_is_issued_from_its_devices_cores_if_workers_have_all(in_mxnet: InMXNet) -> None:
    in_mxnet(ISSUE_FOR_EACH_DEVICE)


LOAD_AGAIN = """
for loaded in (backend, backends.load("mxnet", 2, "cpu", "async", 1)):
    found = {}
    for device in loaded.devices:
        x = loaded.asarray(np.ones(1, dtype=np.float32), device)
        push(lambda device=device: found.update({device: os.sched_getaffinity(0)}), x.ctx, [x])
    loaded.waitall()
    assert [found[device] for device in loaded.devices] == list(loaded.cores), (found, loaded.cores)
"""


@SEVERAL_CORES
def test_the_cores_are_those_of_the_workers_that_run(in_mxnet: InMXNet) -> None:
    in_mxnet(LOAD_AGAIN, devices=available_cores() + 1)


MEET = """
met, meeting = [], threading.Barrier(2)
for x in (ones(1), ones(1)):
    push(lambda: met.append(meeting.wait(20)), x.ctx, [x])
backend.waitall()
print(*sorted(met))
"""


def test_workers_of_a_device_run_at_once(in_mxnet: InMXNet) -> None:
    assert in_mxnet(MEET, workers=2).stdout == "0 1\n"


def test_a_process_keeps_the_variants_that_it_imported_mxnet_with(in_mxnet: InMXNet) -> None:
    code = """
print(*backend.variants, backend.settings["MXNET_CPU_TEMP_COPY"], backend.settings["MXNET_EXEC_BULK_EXEC_TRAIN"])
try:
    backends.load("mxnet")
except backends.BackendError as error:
    print(error)
"""
    variants = ("temporary-space-low", "bulk-on", "copy-on-own-queue")
    told, error = in_mxnet(code, variants=variants).stdout.splitlines()
    assert told == "bulk-on temporary-space-low 4 1"
    assert "already imported with MXNET_CPU_TEMP_COPY=4, and this backend needs 256: start a fresh process" in error


def test_other_threads_know_numpy_s_shapes(require: Callable[[str], None], engine: str) -> None:
    require("mxnet")
    backend = backends.load("mxnet", 2, "cpu", engine, THREADS)
    first, second = backend.devices

    def shape_of_gradient(shape: tuple[int, ...]) -> tuple[int, ...]:
        ones = backend.asarray(np.ones(shape, np.float32), first)
        x = backend.launch(backend.ops.add, backend.copy_to(ones, second), 1.0)
        _, (gradient,) = backend.launch(backend.ops.value_and_grad(lambda p: backend.ops.total(p[0])), (x,))
        found: np.ndarray = backend.to_numpy(gradient)
        return found.shape

    shapes = [(0, 3), (), (2, 0, 4)]
    with ThreadPoolExecutor(1) as pool:
        assert list(pool.map(shape_of_gradient, shapes)) == shapes


FAIL = """
kept = backend.launch(lambda x: mxnet.np.random.normal(0, -1, x.shape, ctx=x.ctx), ones(2))
"""


def test_a_failure_that_nobody_reads_is_no_failure_of_the_process(in_mxnet: InMXNet) -> None:
    done = in_mxnet(FAIL)
    assert (done.stdout, done.stderr) == ("", "")


INTERRUPT = """
import signal
x = ones(1)
try:
    push(lambda: signal.raise_signal(signal.SIGINT), x.ctx, [x])
except KeyboardInterrupt:
    print("interrupted")
print(backend.to_numpy(backend.launch(backend.ops.add, x, 1.0)))
"""


def test_ctrl_c_in_a_function_that_the_engine_calls_at_once_is_passed_on(in_mxnet: InMXNet) -> None:
    assert in_mxnet(INTERRUPT, engine="sync").stdout == "interrupted\n[2.]\n"
