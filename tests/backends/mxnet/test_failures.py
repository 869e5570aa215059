"""Who is told of a failure, which MXNet's one engine reports once, to whoever waits first."""

import pytest

from tests.backends.mxnet.conftest import InMXNet

FAIL = """
def fail(x):
    return mxnet.np.random.normal(0, -1, x.shape, ctx=x.ctx)

broken = backend
kept = broken.launch(fail, ones(2))
"""
LOAD_AGAIN = """
fresh = backends.load("mxnet", 2, "cpu", "async", 1)
fresh.waitall()
assert fresh.to_numpy(ones(2, device=1, of=fresh)).tolist() == [1, 1]
"""
LOADED_BEFORE = """
other = backends.load("mxnet", 2, "cpu", "async", 1)
"""
THE_OTHER_WAITS = """
try:
    other.waitall()
except ComputationError:
    pass
"""
READ = """
try:
    print(broken.to_numpy(kept))
except ComputationError as error:
    print("told:", error)
"""
INTERRUPT = """
import signal
x = ones(1)
try:
    push(lambda: signal.raise_signal(signal.SIGINT), x.ctx, [x])
except KeyboardInterrupt:
    print("interrupted")
print(backend.to_numpy(backend.launch(backend.ops.add, x, 1.0)))
"""
SUM_LATER = """
called = []
x, mark = (mxnet.np.ones(1, ctx=mxnet.cpu(1)) for _ in range(2))
failed = mxnet.np.random.normal(0, -1, (1,), ctx=mxnet.cpu(1))
push(lambda: called.append("read"), mxnet.cpu(1), [x])
push(lambda: called.append("failed"), mxnet.cpu(1), [x, failed], [mark])
push_barrier(x, [mark])
try:
    x.wait_to_read()
except ValueError as error:
    print(called, str(error).splitlines()[-1][:30])
"""
TOLD = "told: mxnet refuses further work after a failure (mxnet"


@pytest.mark.parametrize(
    ("code", "engine", "said"),
    [
        (FAIL, "async", ""),
        (FAIL + "del broken, backend, kept\n" + LOAD_AGAIN, "async", ""),
        (FAIL + LOAD_AGAIN + READ, "async", TOLD),
        (LOADED_BEFORE + FAIL + THE_OTHER_WAITS + READ, "async", TOLD),
        (SUM_LATER, "async", "['read'] ValueError: Check failed: para\n"),
        (INTERRUPT, "sync", "interrupted\n[2.]\n"),
    ],
    ids=[
        "nobody waits until the exit",
        "nobody waits until the next load",
        "another is loaded before it is read",
        "another one waits",
        "from what is read to what is written",
        "Ctrl-C in a function that the engine calls at once",
    ],
)
def test_a_failure_is_told_to_whoever_reads_it(in_mxnet: InMXNet, code: str, engine: str, said: str) -> None:
    done = in_mxnet(code, devices=2, engine=engine)
    assert done.stdout.startswith(said)
    assert bool(done.stdout) == bool(said)
    assert engine == "sync" or done.stderr == ""
