"""MXNet's OpenBLAS is told what the processor can do where it would not see that, and left alone
otherwise.
"""

import json
from typing import Any

import pytest

from backends.host import processor_flags
from backends.installation.kernels import CORE_TYPE, better_core_type
from backends.mxnet import kernels
from tests.backends.conftest import Require
from tests.conftest import RunPython

LOAD = """
import json, os
# NumPy's own OpenBLAS reads the variable as well, when it is loaded.
import numpy
own = {own}
os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.update(own)

import backends
from backends.installation.kernels import kernels_of
from backends.mxnet.kernels import one_thread

backend = backends.load("mxnet", 1, "cpu", "async", threads_per_device=2, variants={variants})

import mxnet
from backends.mxnet.engine import push
from threadpoolctl import threadpool_info

def threads_of_worker():
    counted, done = [], mxnet.np.zeros((1,), ctx=mxnet.cpu(1))
    teams = lambda: [x["num_threads"] for x in threadpool_info() if x["user_api"] == "openmp"]
    push(lambda: counted.extend(teams()), done.ctx, [], [done])
    done.wait_to_read()
    return counted

before = threads_of_worker()
with one_thread(backend, backend.asarray(numpy.ones(1), backend.devices[0])):
    during = threads_of_worker()
print(json.dumps(dict(
    setting=backend.settings["OPENBLAS_CORETYPE"],
    taken=kernels_of(backend)[0].instruction_set,
    left=os.environ.get("OPENBLAS_CORETYPE"),
    threads=[before, during, threads_of_worker()],
)))
"""


def load(run_python: RunPython, environment: dict[str, str], *variants: str) -> Any:
    """Load MXNet in a process of its own, with variables; return what LOAD prints."""
    code = LOAD.format(own=environment, variants=list(variants))
    *_, last_line = run_python(code).stdout.splitlines()
    return json.loads(last_line)


@pytest.mark.long
def test_what_the_user_has_set_is_kept(require: Require, run_python: RunPython) -> None:
    require("mxnet")
    loaded = load(run_python, {CORE_TYPE: "Prescott"})
    assert loaded["setting"] == "Prescott"
    assert loaded["taken"] == "Prescott"
    assert loaded["left"] == "Prescott"
    # It is measured with one thread, and afterwards each worker has its own number again.
    before, during, after = loaded["threads"]
    assert before == [2]
    assert during == [1]
    assert after == [2]


@pytest.mark.long
def test_kernels_below_the_processor_s_are_replaced_unless_they_are_wanted_as_shipped(
    require: Require, run_python: RunPython
) -> None:
    require("mxnet")
    mended, shipped = load(run_python, {}), load(run_python, {}, "blas-as-shipped")
    # No variable is left behind.
    assert mended["left"] is None
    assert shipped["left"] is None
    assert shipped["setting"] is None
    better = better_core_type(shipped["taken"], processor_flags())
    assert mended["setting"] == better
    assert mended["taken"] == (better or shipped["taken"])


@pytest.mark.parametrize("set_by_user", [None, "Prescott", "Haswell", ""])
@pytest.mark.parametrize("own_choice", [None, "Prescott", "Haswell"])
@pytest.mark.parametrize("as_shipped", [False, True])
def test_only_a_choice_of_the_library_s_own_is_changed(
    monkeypatch: pytest.MonkeyPatch,
    set_by_user: str | None,
    own_choice: str | None,
    as_shipped: bool,
) -> None:
    monkeypatch.delenv(CORE_TYPE, raising=False)
    if set_by_user is not None:
        monkeypatch.setenv(CORE_TYPE, set_by_user)
    # The processor can do what Haswell's kernels need, and Prescott's do not use.
    monkeypatch.setattr(kernels, "processor_flags", lambda: frozenset({"avx2", "fma"}))
    monkeypatch.setattr(kernels, "_own_core_type", lambda: own_choice)
    is_changed = set_by_user is None and own_choice == "Prescott" and not as_shipped
    expected = "Haswell" if is_changed else set_by_user
    assert kernels.core_type_to_set(as_shipped) == expected
