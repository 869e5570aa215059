"""One backend fixture for the whole suite: a test that takes `backend` runs on every installed
backend.

In `parallel_core/experiments` it runs on NumPy unless its file asks for `load_any`. A test that
takes `framework_name`, and starts processes of its own, runs on every framework that is more than a
reference.

`--engine` chooses the engine of the whole process, because MXNet reads its own at import; a plain
`pytest` takes async. With `--engine sync` only the tests that depend on the engine run, and not on
NumPy, which has one engine. A framework that cannot be loaded is a skip; `--require mxnet,torch`
ends the run at its start instead.
"""

import ctypes
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import pytest

import backends
from backends import Backend, BackendError
from backends.registry import loading
from benchmarks.harness.two_hosts import NoHostsError, TwoHosts, two_hosts
from parallel_core.system.errors import DISTURBED
from tests.tree import ROOT

FRAMEWORKS = ("jax", "mxnet", "torch")
"""All that queue work; one that is not installed is left out, and a line at the end says so."""

# Other tests' imports must not decide how many threads a framework takes.
THREADS = 1
MAX_GROWTH = 1 << 27
"""Bytes by which a test process may grow before it gives back what is free."""
LIBC = ctypes.CDLL(None)
resident_before = 0
"""Bytes that the process held when it last gave memory back."""


def pytest_configure() -> None:
    # Of the heaps of threads other than the first, malloc gives nothing back: up to 64 MiB for each
    # of 16.
    if hasattr(LIBC, "mallopt"):
        LIBC.mallopt(-8, 1)  # M_ARENA_MAX in malloc.h
    # A machine that is lent for its GPU may have no package but pytest; tests of GPUs use no other.
    if find_spec("hypothesis") is not None:
        from hypothesis import HealthCheck, settings

        # No deadline: a framework's first call takes as long as it takes.
        # A backend keeps no state between examples but its failure, and no example may fail.
        # CI draws more examples than a run that people wait for.
        settings.register_profile(
            "suite",
            deadline=None,
            max_examples=30 if os.environ.get("CI") else 12,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        settings.load_profile("suite")
    # What a background job or nohup ignores, programs under test would ignore too.
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_runtest_logfinish() -> None:
    """Give memory back: a loaded backend tells malloc to keep it, and arrays in reference cycles
    wait for gc.
    """
    global resident_before
    if resident_bytes() > resident_before + MAX_GROWTH and hasattr(LIBC, "malloc_trim"):
        gc.collect()
        LIBC.malloc_trim(0)
        # What threads free that are just ending is given back after one of the next tests.
        resident_before = min(resident_bytes(), resident_before + MAX_GROWTH)


def resident_bytes() -> int:
    """Return the memory that this process holds; 0 if the system does not report it."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=("async", "sync"), default="async")
    parser.addoption(
        "--require", default="", help="frameworks whose absence is a failure: mxnet,torch"
    )


def required(config: pytest.Config) -> list[str]:
    """Return the frameworks that `--require` names."""
    return [name for name in str(config.getoption("--require")).split(",") if name]


def pytest_sessionstart(session: pytest.Session) -> None:
    """End the run if a required framework cannot be loaded: a run that skips everything must not be
    green.
    """
    if hasattr(session.config, "workerinput"):  # The process that started this worker has checked.
        return
    for name in required(session.config):
        if reason := reason_against(name):
            pytest.exit(
                f"{name} is required and cannot be loaded: {reason}",
                returncode=pytest.ExitCode.TESTS_FAILED,
            )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if absent := [name for name in FRAMEWORKS if find_spec(name) is None]:
        terminalreporter.write_line(f"left out: {', '.join(absent)}, not installed in {sys.prefix}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    here = [name for name in FRAMEWORKS if find_spec(name) is not None]
    if "framework_name" in metafunc.fixturenames:
        metafunc.parametrize("framework_name", here)
    if "backend_name" in metafunc.fixturenames:
        # NumPy has one engine, sync, and runs beside the asynchronous engines as their reference.
        reference = ["numpy"] if metafunc.config.getoption("--engine") == "async" else []
        metafunc.parametrize("backend_name", [*here, *reference])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    can_load_any = any(find_spec(name) is not None for name in FRAMEWORKS)
    takes_all = config.getoption("--engine") == "async"
    kept, left_out = [], []
    for item in items:
        has_framework = can_load_any or not needs_framework(item)
        has_engine = takes_all or depends_on_engine(item)
        (kept if has_framework and has_engine else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def needs_framework(item: pytest.Item) -> bool:
    """Return whether a test asks for a framework, and would be skipped where none is installed."""
    # `queueing` says it is PyTorch, which then describes its kernels.
    asking = {"framework_name", "require", "on_gpus", "queueing"}
    return not asking.isdisjoint(getattr(item, "fixturenames", ()))


def depends_on_engine(item: pytest.Item) -> bool:
    """Return whether a test takes the process's engine; one that is parametrised with engines has
    its own processes.
    """
    own = getattr(item, "callspec", None)
    return "engine" in getattr(item, "fixturenames", ()) and (
        own is None or "engine" not in own.params
    )


@pytest.fixture(scope="session", autouse=True)
def _packages_are_searched_once() -> Iterator[None]:
    """Keep what loading a backend finds among installed packages, until their folders change."""
    search = loading._entry_points

    @cache
    def found_in(group: str, _: tuple[tuple[str, int], ...]) -> list[EntryPoint]:
        return search(group)

    def folders() -> tuple[tuple[str, int], ...]:
        """Return the folders that modules come from, and when each one changed."""
        paths = [Path(path) for path in sys.path if Path(path).is_dir()]
        return tuple((str(path), path.stat().st_mtime_ns) for path in paths)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loading, "_entry_points", lambda group: found_in(group, folders()))
        yield


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--engine"))


@pytest.fixture
def load_any(
    backend_name: str, engine: str, request: pytest.FixtureRequest
) -> Callable[[int], Backend]:
    """Load the parametrised backend with some CPU devices of one thread each."""

    def load_with(devices: int) -> Backend:
        try:
            own = "sync" if backend_name == "numpy" else engine
            return backends.load(backend_name, devices, "cpu", own, THREADS)
        except BackendError as error:
            if backend_name in required(request.config):
                raise
            pytest.skip(str(error))

    return load_with


@pytest.fixture
def load(load_any: Callable[[int], Backend]) -> Callable[[int], Backend]:
    """What `backend` is loaded with; a folder may have its own."""
    return load_any


@pytest.fixture
def backend(load: Callable[[int], Backend]) -> Backend:
    """The parametrised backend with three devices, so that no test takes two for granted."""
    return load(3)


Require = Callable[[str], None]
RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python() -> RunPython:
    """Run Python code in a fresh process and return its outcome."""

    def run(
        code: str, *, check: bool = True, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **environment},
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run


MEASURED = (0, DISTURBED)
"""The exit statuses of a run whose numbers are right, however busy the machine was."""

RunProgram = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunProgram:
    """Run `parallel-core` with arguments in this process, for what needs no framework and no
    signals.
    """
    from parallel_core.command_line import program

    monkeypatch.setattr(program, "end_soon_on_interrupt", lambda: None)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        monkeypatch.setattr(sys, "argv", ["parallel-core", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            program.main()
        code = ended.value.code
        return subprocess.CompletedProcess(
            arguments, code if isinstance(code, int) else 0, *capfd.readouterr()
        )

    return run


@cache
def reason_against(framework: str) -> str:
    """Load a framework in a fresh process, once for all tests; return why it cannot be loaded, or
    an empty string.
    """
    command = [
        sys.executable,
        "-c",
        f"import backends; backends.load({framework!r}, 1, 'cpu', 'sync')",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@pytest.fixture
def require(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Skip a test whose framework cannot be loaded. A required one can: the session started with
    it.
    """

    def check(name: str) -> None:
        if name not in required(request.config) and (reason := reason_against(name)):
            pytest.skip(f"{name} cannot be loaded: {reason}")

    return check


@pytest.fixture
def hosts() -> Iterator[TwoHosts]:
    """Two hosts of one machine, each in a network namespace of its own; a skip if this machine
    cannot have them.
    """
    with ExitStack() as stack:
        try:
            pair = stack.enter_context(two_hosts())
        except NoHostsError as error:
            pytest.skip(str(error))
        yield pair


@pytest.fixture
def root() -> Path:
    return ROOT
