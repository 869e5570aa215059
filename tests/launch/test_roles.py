"""Parts of a job started by hand: plain Python programs in MXNet's roles, on loopback and between two networks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parallel_core.command_line import cli
from parallel_core.errors import MeasurementError, RequestError
from parallel_core.launch.addresses import free_port
from parallel_core.launch.job import Job
from parallel_core.launch.link.messages import Start
from parallel_core.launch.reports import Arrived, Failed, FromAgent, Joined, Printed, Progress, Reported, Training
from parallel_core.launch.roles import for_the_hub, launch_role, link_port, process_of
from tests.launch.ranks import is_gone

HERE = "127.0.0.1"
# In the roles of scheduler and server: it serves until the workers have left their marks.
SERVER = f"""#!{sys.executable}
import os, sys, threading, time
def leave_with_the_agent():
    os.read(0, 1)
    os._exit(9)
threading.Thread(target=leave_with_the_agent, daemon=True).start()
with open(os.path.join(os.environ["MARKS"], f"server-{{os.getpid()}}"), "w") as file:
    print(os.environ["DMLC_ROLE"], os.environ["DMLC_NODE_HOST"], file=file)
while sum(name.startswith("done") for name in os.listdir(os.environ["MARKS"])) < int(os.environ["DMLC_NUM_WORKER"]):
    time.sleep(0.05)
"""
# In the role of a worker; what it does then is its first argument.
WORKER = """
import faulthandler, json, os, signal, sys, threading, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
rank, reports = int(os.environ["RANK"]), int(os.environ["PARALLEL_CORE_REPORTS"])
def leave_with_the_agent():
    os.read(0, 1)
    os._exit(9)
threading.Thread(target=leave_with_the_agent, daemon=True).start()
def report(kind, **fields):
    os.write(reports, json.dumps({"type": kind, **fields}).encode() + b"\\n")
names = ("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NODE_HOST", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
print(os.environ["DMLC_ROLE"], rank, *(os.environ[name] for name in names), flush=True)
with open(os.path.join(os.environ["MARKS"], f"worker-{os.getpid()}"), "w") as file:
    print(rank, file=file)
report("Joined", rank=rank, host=f"host-{rank}")
report("Progress", exchanges=5 - rank, epoch=1, step=4)
exec(sys.argv[1])
open(os.path.join(os.environ["MARKS"], f"done-{rank}"), "w").close()
"""
LAUNCH = """
import os, sys
from parallel_core.__main__ import complain, told
from parallel_core.launch.job import Job
from parallel_core.launch.roles import launch_role
role, address, port, server, python, worker, deed, timeout = sys.argv[1:]
job = Job((python, "-c", worker, deed), (), "mxnet", 1, address, address, int(port), None, float(timeout), server)
try:
    sys.exit(launch_role(role, job, 2))
except Exception as error:
    message, status = told(error)
    complain(message)
    sys.exit(status)
"""


class Parts:
    """The launches of a job of a scheduler, a server and two workers."""

    def __init__(self, folder: Path, address: str = HERE, timeout: float = 20) -> None:
        self.folder, self.address, self.timeout = folder, address, timeout
        # The launches meet at the port above it, which is nearly always free as well, and not given to connections.
        self.port = free_port(HERE)
        self.server = folder / "server"
        self.server.write_text(SERVER)
        self.server.chmod(0o755)
        self.marks = folder / "marks"
        self.marks.mkdir()
        # Another name than the server's stand-in has, which takes this Python's place in the command.
        self.python = folder / "python"
        self.python.symlink_to(sys.executable)
        self.launches: list[subprocess.Popen[str]] = []

    def start(self, role: str, deed: str = "", before: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        arguments = [role, self.address, str(self.port), str(self.server), str(self.python), WORKER, deed]
        launch = subprocess.Popen(
            [*before, sys.executable, "-c", LAUNCH, *arguments, str(self.timeout)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "MARKS": str(self.marks)},
        )
        self.launches.append(launch)
        return launch

    def pids(self, count: int) -> list[int]:
        """Wait until so many processes have begun, and return their numbers."""
        for _ in range(600):
            begun = [path for path in self.marks.iterdir() if path.read_text() and not path.name.startswith("done")]
            pids = [int(path.name.split("-")[1]) for path in begun]
            if len(pids) >= count:
                return pids
            time.sleep(0.05)
        said = [launch.communicate()[1] for launch in self.launches if launch.poll() is not None]
        raise AssertionError(f"only {len(pids)} processes have begun, and these launches have ended: {said}")

    def ends(self) -> list[tuple[int, str, str]]:
        """Wait for the launches, and return the status and output of each, and the last line of its errors."""
        found = []
        for launch in self.launches:
            output, errors = launch.communicate(timeout=60)
            found.append((launch.returncode, output, (errors.splitlines() or [""])[-1]))
        return found


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = Parts(tmp_path)
    yield made
    for launch in made.launches:
        if launch.poll() is None:
            launch.kill()
        launch.communicate()


def start_all(parts: Parts, first: str = "", second: str = "") -> None:
    parts.start("worker", first)
    parts.start("scheduler")
    parts.start("server")
    parts.start("worker", second)


SLEEP = "time.sleep(1000)"


def test_a_job_started_by_hand_ends_well(parts: Parts) -> None:
    start_all(parts)
    ends = parts.ends()
    assert [status for status, _, _ in ends] == [0] * 4
    # Only rank 0 shows what it prints; each process knows its place.
    (shown,) = [output for _, output, _ in ends if output]
    assert shown == f"worker 0 {HERE} {parts.port} {HERE} 2 0 2\n"
    assert sorted(path.read_text() for path in parts.marks.glob("server-*")) == [
        f"scheduler {HERE}\n",
        f"server {HERE}\n",
    ]


@pytest.mark.parametrize("victim", ["1", "server"])
def test_a_killed_process_ends_all_launches_with_its_name(parts: Parts, victim: str) -> None:
    start_all(parts, SLEEP, SLEEP)
    pids = parts.pids(4)
    (killed,) = [path for path in parts.marks.iterdir() if path.read_text().split()[0] == victim]
    time.sleep(0.3)
    os.kill(int(killed.name.split("-")[1]), signal.SIGKILL)
    ends = parts.ends()
    assert [status for status, _, _ in ends] == [1] * 4
    (line,) = {line for _, _, line in ends}
    name = "rank 1 on host-1" if victim == "1" else f"server 0 on {os.uname().nodename}"
    assert line.startswith(f"parallel-core: {name} was killed by SIGKILL")
    assert all(map(is_gone, pids))


@pytest.mark.parametrize(
    ("role", "number"), [("scheduler", signal.SIGKILL), ("scheduler", signal.SIGTERM), ("worker", signal.SIGINT)]
)
def test_a_launch_that_is_ended_ends_all(parts: Parts, role: str, number: signal.Signals) -> None:
    start_all(parts, SLEEP, SLEEP)
    pids = parts.pids(4)
    ended = parts.launches[1 if role == "scheduler" else 3]
    ended.send_signal(number)
    ends = parts.ends()
    own = ends.pop(parts.launches.index(ended))
    assert own[0] == (1 if number is not signal.SIGKILL else -signal.SIGKILL)
    assert [status for status, _, _ in ends] == [1] * 3
    (line,) = {line for _, _, line in ends}
    killed = "is gone, or cannot be reached any more"
    if role == "scheduler":
        at = f" at {HERE}:{parts.port + 1} {killed}"
        assert line == f"parallel-core: the scheduler's launch{at if number is signal.SIGKILL else ' was interrupted'}"
    else:
        assert line.startswith("parallel-core: the launch of rank ")
        assert line.endswith(killed if number is signal.SIGKILL else "was interrupted")
    assert all(map(is_gone, pids))


def test_a_worker_that_hangs_is_named_and_shows_its_stacks(parts: Parts) -> None:
    parts.timeout = 4
    start_all(parts, "def dawdle(): time.sleep(1000)\ndawdle()", "def dawdle(): time.sleep(1000)\ndawdle()")
    errors = [launch.communicate(timeout=60)[1] for launch in parts.launches]
    assert [launch.returncode for launch in parts.launches] == [1] * 4
    (line,) = {text.splitlines()[-1] for text in errors}
    # Its exchanges are fewer by one.
    assert line.startswith("parallel-core: rank 1 on host-1 has made no progress")
    assert "in dawdle" in errors[0]
    assert "in dawdle" in errors[3]


def test_who_does_not_come_is_missed(parts: Parts) -> None:
    parts.start("worker", SLEEP)
    parts.start("server")
    parts.timeout = 4
    parts.start("scheduler")
    ends = parts.ends()
    assert [status for status, _, _ in ends] == [1] * 3
    assert {line for _, _, line in ends} == {"parallel-core: 1 of 2 workers has not joined within 4 s"}
    assert not list(parts.marks.iterdir())


def job(address: str = HERE, port: int = 9000, backend: str = "mxnet", interface: str | None = None) -> Job:
    return Job(("run",), (), backend, 1, address, address, port, interface, 1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (job(backend="torch"), "--role is for MXNet"),
        (job(address="0.0.0.0"), "name one address"),
        (job(port=65535), "needs a port below 65535"),
        (job(interface="eth77"), "no network interface 'eth77'"),
    ],
)
def test_a_part_that_cannot_be_is_refused(wrong: Job, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        launch_role("worker", wrong, 2)


@pytest.mark.parametrize("above", [0, 1])
def test_a_port_in_use_is_named(above: int) -> None:
    import socket

    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(MeasurementError, match=f"{HERE}:{port}: the port is in use"):
            launch_role("scheduler", job(port=port - above), 2)


def test_the_hub_cannot_ask_for_anything_else() -> None:
    assert link_port(job()) == 9001
    assert process_of(Start("rank 2", (2, 1)), job()).environment["LOCAL_RANK"] == "0"
    for name in ("rank 3", "server 1", "reboot"):
        with pytest.raises(MeasurementError, match="is not in this job"):
            process_of(Start(name, (2, 1)), job())


@pytest.mark.parametrize(
    ("message", "is_told"),
    [
        (Reported("rank 0", Arrived("a")), True),
        (Reported("rank 0", Joined(0, "a")), True),
        (Reported("rank 0", Progress(1)), True),
        (Reported("rank 0", Failed("full disk", by_others=False, status=1)), True),
        (Reported("rank 0", Training(1, 8)), False),
        (Printed("rank 0", b"words", error=False), False),
    ],
)
def test_the_hub_is_told_what_its_watch_decides_by(message: FromAgent, is_told: bool) -> None:
    assert for_the_hub(message) == (message,) * is_told


@contextmanager
def two_networks() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Make two network namespaces joined by a cable, and yield the commands that run something in them."""
    names = [f"parallel-core-{os.getpid()}-{side}" for side in "ab"]
    cable = [f"pc{os.getpid() % 100000}{side}" for side in "ab"]
    made = []
    try:
        for name in names:
            done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no network namespaces can be made here: {done.stderr.strip()}")
            made.append(name)
        for command in (
            f"link add {cable[0]} netns {names[0]} type veth peer name {cable[1]} netns {names[1]}",
            *(f"-n {name} link set lo up" for name in names),
            *(f"-n {name} address add 10.77.0.{i}/24 dev {cable[i - 1]}" for i, name in enumerate(names, 1)),
            *(f"-n {name} link set {end} up" for name, end in zip(names, cable, strict=True)),
        ):
            done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no networks can be joined here: {done.stderr.strip()}")
        first, second = (("ip", "netns", "exec", name) for name in names)
        yield first, second
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def test_two_machines_know_their_own_addresses(parts: Parts) -> None:
    with two_networks() as (first, second):
        parts.address = "10.77.0.1"
        for role, where in (("scheduler", first), ("server", first), ("worker", first), ("worker", second)):
            parts.start(role, "print(os.environ['DMLC_NODE_HOST'], file=sys.stderr, flush=True)", where)
        errors = [launch.communicate(timeout=60)[1].split() for launch in parts.launches]
        assert [launch.returncode for launch in parts.launches] == [0] * 4
        assert "10.77.0.1" in errors[2]
        assert "10.77.0.2" in errors[3]
        assert "10.77.0.2" not in errors[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--processes", "2"], "--role needs --root HOST:PORT and --processes N"),
        (["--root", "localhost:9000"], "--role needs --root HOST:PORT and --processes N"),
        (["--root", "localhost", "--processes", "2"], "'localhost' is not HOST:PORT"),
        (["--root", "[::1]:9000", "--processes", "2"], "is an IPv6 address"),
        (["--root", "localhost:9000", "--processes", "2", "--port", "9000"], "--port is for a whole job"),
        (["--root", "localhost:9000", "--processes", "2", "--", "run", "data-parallel"], "only workers run a command"),
        (["--root", "0.0.0.0:9000", "--processes", "2", "--trusted-network"], "name one address"),
        (["--root", "localhost:9000", "--processes", "2", "--backend", "torch"], "--role is for MXNet"),
    ],
)
def test_the_command_refuses_half_a_description(arguments: list[str], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        cli.main(["launch", "--role", "server", *arguments], standalone_mode=False)
    assert said in str(caught.value)


def test_a_root_without_a_role_is_refused() -> None:
    with pytest.raises(RequestError, match="give --role too"):
        cli.main(["launch", "--root", "localhost:9000", "--processes", "2"], standalone_mode=False)
