"""A job's processes: which there are, what each finds in its environment, what is read of them, and how all end.

What ranks have beside their training: shares of a host's GPUs, progress that is told, and the same data in all.
"""

import asyncio
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import backends
from backends.process_groups import DisagreementError, Group, GroupedBackend
from backends.process_groups.rendezvous import Rendezvous, rendezvous
from parallel_core.command_line.run.resources import agree_on_data, progress_of
from parallel_core.jobs.job import Ended, Job, News, Printed, Process, Progress, processes_of
from parallel_core.jobs.processes import running
from parallel_core.jobs.rank import share_gpus
from tests.backends.process_groups.threads import together
from tests.parallel_core.experiments.small import made_up
from tests.parallel_core.jobs.ranks import are_gone, start_launcher, wait_for_lines

JOB = Job(("run", "it"), 3, "torch", 0, 1234, 12.5)
MXNET = replace(JOB, backend="mxnet", servers=2)


def rendezvous_of(process: Process) -> Rendezvous | None:
    return rendezvous({name: value for name, value in process.environment.items() if value is not None})


@pytest.mark.parametrize("job", [JOB, MXNET])
def test_ranks_read_back_what_they_are(job: Job) -> None:
    ranks = [process for process in processes_of(job) if process.name.startswith("rank")]
    assert [process.name for process in ranks] == ["rank 0", "rank 1", "rank 2"]
    # What somebody else set is taken away.
    own = {"DMLC_ROLE": None if job is JOB else "worker", "PARALLEL_CORE_BIND": None}
    for number, process in enumerate(ranks):
        assert process.command == ("run", "it")
        assert rendezvous_of(process) == Rendezvous(number, 3, number, 3, "127.0.0.1", 1234, 12.5)
        assert own.items() <= process.environment.items()


def test_only_mxnet_has_a_scheduler_and_servers_and_they_come_first() -> None:
    assert [process.name for process in processes_of(JOB)] == ["rank 0", "rank 1", "rank 2"]
    serving = processes_of(MXNET)[:-3]
    assert [process.name for process in serving] == ["scheduler", "server 0", "server 1"]
    # Whoever chose the synchronous engine did not choose it for them.
    own = {"MXNET_ENGINE_TYPE": None, "OMP_NUM_THREADS": "1"}
    for process in serving:
        where = rendezvous_of(process)
        assert where is not None
        assert (where.role, where.rank, where.size) == (process.name.split()[0], None, 3)
        assert process.command[1:] == ("-P", "-m", "backends.mxnet.parameter_server")
        assert own.items() <= process.environment.items()


def test_all_traffic_is_on_the_loopback_interface() -> None:
    here = {"GLOO_SOCKET_IFNAME": "lo", "DMLC_NODE_HOST": "127.0.0.1"}
    here |= dict.fromkeys(("PORT", "DMLC_USE_KUBERNETES", "DMLC_INTERFACE"))
    assert all(here.items() <= process.environment.items() for process in processes_of(MXNET))


def news_of(code: str, pause: float = 0.0) -> list[News]:
    """Return the news of a Python program, each of which is taken for as long as the pause."""

    async def follow() -> list[News]:
        taken: list[News] = []
        over = asyncio.Event()

        def take(_: str, news: News) -> None:
            time.sleep(pause)
            taken.append(news)
            if isinstance(news, Ended):
                over.set()

        async with running([Process("rank 0", (sys.executable, "-S", "-c", code), {})], {}, take):
            await over.wait()
        return taken

    return asyncio.run(follow())


def test_what_is_left_in_the_pipes_is_passed_on_before_the_end() -> None:
    # The pipe is large enough for all of it, so that the process ends before any of it is taken.
    code = "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 19); os.write(1, b'x' * 350_000)"
    *printed, ended = news_of(code, pause=0.1)
    assert sum(len(one.data) for one in printed if isinstance(one, Printed) and not one.error) == 350_000
    assert ended == Ended(0)


def test_reports_are_taken_line_by_line_and_what_is_none_is_output() -> None:
    code = """
import os
report = int(os.environ["PARALLEL_CORE_REPORTS"])
for piece in (b'{"type":"Pro', b'gress","exchanges":7}\\nnone\\n{"type":"Progress"}\\n{"type'):
    os.write(report, piece)
os._exit(5)
"""
    assert news_of(code) == [Progress(7), Printed(b"none\n", error=True), Progress(), Ended(5)]


def test_a_child_in_another_session_keeps_nobody() -> None:
    # It says something now and then, for longer than the test may take.
    child = "import time\nfor n in range(100): time.sleep(0.1); print(n, flush=True)"
    *printed, ended = news_of(
        "import subprocess, sys; print('all', flush=True); "
        f"subprocess.Popen([sys.executable, '-S', '-c', {child!r}], start_new_session=True)"
    )
    assert printed[0].data.startswith(b"all")  # type: ignore[union-attr]
    assert ended == Ended(0)
    assert len(printed) < 50


# A child of the rank's own is to go as well.
BUSY = "note(subprocess.Popen(['sleep', '1000']).pid); note(os.getpid()); join()\nwait()"


@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGHUP,), (signal.SIGINT, signal.SIGINT, signal.SIGTERM)],
    ids=str,
)
def test_a_signal_to_the_launcher_ends_all_in_one_line(tmp_path: Path, numbers: tuple[signal.Signals, ...]) -> None:
    with start_launcher(BUSY, str(tmp_path / "pids")) as launcher:
        pids = wait_for_lines(4, tmp_path / "pids")
        # What is typed at the terminal reaches the launcher only.
        sessions = {os.getsid(int(pid)) for pid in pids}
        assert len(sessions) == 2
        assert os.getsid(launcher.pid) not in sessions
        for number in numbers:
            launcher.send_signal(number)
            time.sleep(0.02)
        output, errors = launcher.communicate(timeout=20)
    # Of several that arrive while the launcher has no core, any may be the first.
    name = signal.Signals(launcher.returncode - 128).name
    assert (name in [number.name for number in numbers], output) == (True, b"")
    assert errors.decode() == f"parallel-core: interrupted by {name}: all processes were ended\n"
    assert are_gone(pids)


STOPPED = """
from parallel_core.jobs.rank import leave_with_starter
leave_with_starter(); note(os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize(("code", "processes"), [(BUSY, 4), (STOPPED, 2)])
def test_nothing_is_left_when_the_launcher_is_killed(code: str, processes: int, tmp_path: Path) -> None:
    with start_launcher(code, str(tmp_path / "pids")) as launcher:
        pids = wait_for_lines(processes, tmp_path / "pids")
        launcher.kill()
        launcher.communicate(timeout=20)
    assert are_gone(pids)


@pytest.mark.parametrize(
    ("given", "devices", "shares"),
    [
        (None, 1, ["0", "1", "2"]),
        (None, 2, ["0,1", "2,3", "4,5"]),
        ("7,5,3", 1, ["7", "5", "3"]),
        # Too few for all: a rank without a GPU finds none, and the ranks disagree on the kind of device.
        ("4", 1, ["4", "", ""]),
        ("", 1, ["", "", ""]),
        # One that is alone on its host sees all.
        (None, 1, [None]),
    ],
)
def test_each_rank_sees_its_share(
    given: str | None, devices: int, shares: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank, share in enumerate(shares):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given or "")
        if given is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        share_gpus(Rendezvous(rank, len(shares), rank, len(shares), "127.0.0.1", 29500, 30.0), devices)
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == share


def test_the_ranks_data_are_compared_by_number_and_content() -> None:
    def program(group: Group) -> str:
        data = made_up(train=100 if group.rank else 200)
        with pytest.raises(DisagreementError) as raised:
            agree_on_data(group, data)
        return str(raised.value)

    for message in together(2, program):
        assert "the number of training images (200 on rank 0; 100 on rank 1)" in message
        assert "the checksum of the training images" in message
        assert "test images" not in message


def test_every_batch_is_progress_and_an_exchange_keeps_its_number() -> None:
    """A batch without an exchange is progress of a rank that no launcher watches."""

    def program(group: Group) -> list[int]:
        told: list[int] = []
        backend = GroupedBackend(backends.load("numpy", 1), group, [1, 1], told.append)
        with progress_of(backend, 1, 8) as progress:
            progress.on_batch(1, 4)
            for _ in range(2):
                backend.allreduce([backend.asarray(np.ones(2, np.float32), device) for device in backend.devices])
            # As of an evaluation.
            progress.on_batch(1, 0)
        return told

    assert together(2, program) == [[0, 1, 2, 2]] * 2
