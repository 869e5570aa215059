"""What is submitted is submitted whole: neither Ctrl-C nor a thread comes between the parts of a
collective.
"""

from collections.abc import Callable

import pytest

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
for _ in range(300):
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
print(interrupted)
"""
THREADS_WITH_DATA_OF_THEIR_OWN = """
sys.setswitchinterval(1e-6)
found = []

def sum_up(order):
    values = ones(order)
    for _ in range(200):
        values = [backend.launch(ops.multiply, value, 1 / 3) for value in backend.allreduce(values)]
    found.extend(round(float(backend.to_numpy(value)[0])) for value in values)

def go_round(order):
    value = ones(order)[0]
    for step in range(1000):
        value = backend.copy_to(value, order[step % 3])
    found.append(int(backend.to_numpy(value)[0]))

works = [(sum_up, devices), (sum_up, devices[::-1]), (go_round, devices), (go_round, devices[::-1])]
threads = [threading.Thread(target=work, args=(order,), daemon=True) for work, order in works]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(100)
print(sum(found), len(found))
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [(CTRL_C_AT_ANY_MOMENT, "300\n"), (THREADS_WITH_DATA_OF_THEIR_OWN, "8 8\n")],
)
def test_nobody_waits_for_a_part_that_never_comes(
    program: str, printed: str, require: Callable[[str], None], run_python: RunPython
) -> None:
    """With one worker for each device, and with two."""
    require("torch")
    code = "".join((BEFORE + program).format(workers=workers) for workers in (1, 2))
    assert run_python(code).stdout == 2 * printed
