"""What is submitted is submitted whole: neither Ctrl-C nor a thread comes between the parts of a
collective.
"""

from tests.backends.conftest import Require
from tests.conftest import RunPython

BEFORE = """
import random, signal, sys, threading
import numpy as np
import backends

backend = backends.load("torch", 3, "cpu", "async", 1, {workers})
ops, devices = backend.ops, backend.devices

def ones(places=devices):
    return [backend.asarray(np.ones(3, np.float32), device) for device in places]
"""
CTRL_C_AT_ANY_MOMENT = """
draw = random.Random({workers})
armed = False

def interrupt(*_):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
interrupted = 0
for _ in range(120):
    values, others = ones(), ones()
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(2e-5, 1e-3))
        while True:
            backend.allreduce([backend.launch(ops.add, value, 1.0) for value in values])
            others = backend.allreduce(others)
            backend.copy_to(values[0], devices[1], out=backend.launch(ops.multiply, values[1], 2.0))
    except KeyboardInterrupt:
        interrupted += 1
    backend.waitall()
    for total in backend.allreduce(values):
        assert backend.to_numpy(total).tolist() == [3, 3, 3]
assert backend.to_numpy(others[0]).shape == (3,)
print(interrupted, "interrupted")
"""
THREADS_WITH_DATA_OF_THEIR_OWN = """
sys.setswitchinterval(1e-6)
results = []

def sum_up(order):
    values = ones(order)
    for _ in range(200):
        sums = backend.allreduce(values)
        values = [backend.launch(ops.multiply, total, 1 / 3) for total in sums]
    for value in values:
        results.append(round(float(backend.to_numpy(value)[0])))

def go_round(order):
    value = ones(order)[0]
    for step in range(1000):
        value = backend.copy_to(value, order[step % 3])
    results.append(int(backend.to_numpy(value)[0]))

threads = [
    threading.Thread(target=work, args=(order,), daemon=True)
    for work in (sum_up, go_round)
    for order in (devices, devices[::-1])
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(100)
print(results)
"""


def output_of(run_python: RunPython, program: str) -> str:
    """Return what a program prints with one worker for each device, and then with two."""
    code = ""
    for workers in (1, 2):
        code += (BEFORE + program).format(workers=workers)
    return run_python(code).stdout


def test_ctrl_c_leaves_no_part_of_a_collective_out(require: Require, run_python: RunPython) -> None:
    require("torch")
    assert output_of(run_python, CTRL_C_AT_ANY_MOMENT) == "120 interrupted\n" * 2


def test_threads_with_data_of_their_own_do_not_wait_for_each_other(
    require: Require, run_python: RunPython
) -> None:
    require("torch")
    # Two threads sum ones on three devices, and divide by three; two copy a one from device to
    # device.
    assert output_of(run_python, THREADS_WITH_DATA_OF_THEIR_OWN) == f"{[1] * 8}\n" * 2
