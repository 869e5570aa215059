"""MXNet's one engine at the edges of Python: a failure that nobody reads, and Ctrl-C in a function that it calls."""

from tests.backends.mxnet.conftest import InMXNet

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
