"""What lies around the frameworks: variables, packages, cores, data, caches and ports."""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.installation.probe import Probe
from parallel_core.doctor import data_and_caches as places
from parallel_core.doctor import host as processors
from parallel_core.doctor import python as packages
from parallel_core.doctor import python as this_python
from parallel_core.doctor.comparison import examine_comparing
from parallel_core.doctor.finding import Diagnosis, Finding, Section
from parallel_core.doctor.frameworks import Attempt
from parallel_core.doctor.ports import examine_ports
from parallel_core.doctor.settings import examine_settings
from parallel_core.training import dataset

MXNET = Attempt("mxnet", (("mxnet", "1.9.1"),), (Probe("mxnet", "async", "1.9.1"), Probe("mxnet", "sync", "1.9.1")))
TORCH = Attempt("torch", (("torch", "2.13.0"),), (Probe("torch", "async", "2.13.0"),))


def states(section: Section) -> dict[str, str]:
    return {finding.name: finding.state for finding in section.findings}


def named(section: Section, name: str) -> Finding:
    return next(finding for finding in section.findings if finding.name == name)


def command(finding: Finding) -> str:
    assert finding.advice is not None
    return finding.advice.command


@pytest.mark.parametrize(
    ("environment", "name", "state", "mended_by"),
    [
        ({"MXNET_ENGINE_TYPE": "NaivEngine"}, "MXNET_ENGINE_TYPE", "broken", "unset MXNET_ENGINE_TYPE"),
        (
            {"DMLC_ROLE": "server"},
            "DMLC_ROLE",
            "broken",
            "unset DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_WORKER DMLC_NUM_SERVER",
        ),
        ({"MXNET_ENGINE_TYPE": "NaiveEngine"}, "MXNET_ENGINE_TYPE", "fine", None),
        ({"MXNET_CPU_TEMP_COPY": "4"}, "MXNET_CPU_TEMP_COPY", "fine", None),
        (
            {"MXNET_CPU_PRIORITY_NTHREADS": "1"},
            "MXNET_CPU_PRIORITY_NTHREADS",
            "doubtful",
            "unset MXNET_CPU_PRIORITY_NTHREADS",
        ),
        ({"OMP_NUM_THREADS": "2"}, "OMP_NUM_THREADS", "fine", None),
        ({"OMP_NUM_THREADS": "4,2"}, "OMP_NUM_THREADS", "fine", None),
        ({"OMP_NUM_THREADS": "many"}, "OMP_NUM_THREADS", "doubtful", "unset OMP_NUM_THREADS"),
        ({"MKL_NUM_THREADS": "0"}, "MKL_NUM_THREADS", "doubtful", "unset MKL_NUM_THREADS"),
        ({"GOMP_CPU_AFFINITY": "0"}, "GOMP_CPU_AFFINITY", "doubtful", "unset GOMP_CPU_AFFINITY"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "RANK", "doubtful", "unset RANK WORLD_SIZE MASTER_ADDR"),
        (
            {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "2"},
            "DMLC_NUM_WORKER",
            "doubtful",
            "unset DMLC_NUM_WORKER DMLC_ROLE",
        ),
        ({"DMLC_NUM_SERVER": "1"}, "DMLC_NUM_SERVER", "doubtful", "unset DMLC_NUM_SERVER"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING", "doubtful", "unset CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_a_variable_that_is_set_is_told_with_what_it_does(
    environment: dict[str, str], name: str, state: str, mended_by: str | None
) -> None:
    section = examine_settings(environment, [MXNET])
    finding = named(section, name)
    assert finding.state == state
    assert mended_by is None if finding.advice is None else finding.advice.command == mended_by
    assert list(states(section)).count(name) == 1
    # Nothing else is wrong.
    assert [other for other, found in states(section).items() if found != "fine"] == ([] if state == "fine" else [name])


def test_an_engine_that_is_misspelt_breaks_nothing_where_there_is_no_mxnet() -> None:
    section = examine_settings({"MXNET_ENGINE_TYPE": "NaivEngine"}, [TORCH])
    assert named(section, "MXNET_ENGINE_TYPE").state == "doubtful"


VARIABLES = st.sampled_from(["OMP_NUM_THREADS", "MXNET_ENGINE_TYPE", "MXNET_X", "DMLC_ROLE", "RANK", "PS_VERBOSE"])


@given(st.dictionaries(VARIABLES | st.text(), st.text()))
def test_advice_only_ever_unsets_what_is_set(environment: dict[str, str]) -> None:
    for finding in examine_settings(environment, [MXNET]).findings:
        if finding.advice is not None:
            assert command(finding).split()[0] == "unset"
            assert set(command(finding).split()[1:]) & set(environment)


def required(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Section:
    monkeypatch.setattr(packages, "requires", lambda name: list(lines))
    return packages.examine_packages()


def test_packages_are_held_against_what_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    section = required(monkeypatch, "click>=8", "click>=99; python_version < '3'", "click>=999; extra == 'torch'")
    assert set(states(section).values()) == {"fine"}
    finding = named(required(monkeypatch, "click>=999", "rich"), "required packages")
    assert finding.state == "broken"
    assert command(finding) == "pip install 'click>=999'"
    finding = named(required(monkeypatch, "rich", "no-such-package>=2"), "required packages")
    assert finding.state == "broken"
    assert command(finding) == "pip install 'no-such-package>=2'"


def test_what_only_plotting_needs_may_be_absent_but_not_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    section = required(monkeypatch, "no-such-package>=2; extra == 'plot'")
    assert states(section) == {"parallel-core": "fine", "required packages": "fine", "plotting packages": "absent"}
    assert command(named(section, "plotting packages")) == "pip install 'no-such-package>=2'"
    assert named(required(monkeypatch, "rich>=999; extra == 'plot'"), "plotting packages").state == "broken"


def test_commands_are_for_this_python_where_the_shell_s_pip_is_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "my python"
    monkeypatch.setattr(this_python.sys, "executable", str(own))
    monkeypatch.setenv("PATH", "")
    given_command = "pip uninstall --yes mxnet && pip install numpy"
    told = this_python.for_this_python(Diagnosis("a cause", given_command))
    assert told.command == f"'{own}' -m pip uninstall --yes mxnet && '{own}' -m pip install numpy"
    # A pip beside the Python that runs is its own.
    (tmp_path / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert this_python.for_this_python(Diagnosis("a cause", given_command)).command == given_command
    other = Diagnosis("a cause", "elsewhere/bin/pip install numpy")
    monkeypatch.setenv("PATH", "")
    assert this_python.for_this_python(other) == other


@pytest.mark.parametrize(
    ("limit", "state", "mended_by"),
    [
        ("max 100000", "fine", None),
        ("800000 100000", "fine", None),
        ("250000 100000", "doubtful", "taskset --cpu-list 4,5 parallel-core compare"),
        ("nonsense", "fine", None),
    ],
)
def test_a_container_s_share_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, state: str, mended_by: str | None
) -> None:
    monkeypatch.setattr(processors, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(processors, "core_numbers", lambda: [4, 5, 6, 7])
    monkeypatch.setattr(processors, "available_cores", lambda: 4)
    (tmp_path / "cpu.max").write_text(limit)
    (tmp_path / "memory.max").write_text(str(2**20))
    finding = processors.examine_cores()
    assert finding.state == state
    assert mended_by == (finding.advice.command if finding.advice else None)
    assert processors.examine_memory().figures["total_bytes"] == 2**20


def test_one_core_shows_nothing_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(processors, "available_cores", lambda: 1)
    monkeypatch.setattr(processors.os, "cpu_count", lambda: 8)
    assert command(processors.examine_cores()) == "taskset --cpu-list 0-7 parallel-core doctor"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data anywhere, and a cache of one's own."""
    monkeypatch.setattr(dataset, "DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def bad_files(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in dataset.FILES:
        (folder / name).write_bytes(b"cut off")
    return folder


def test_data_that_are_nowhere_are_no_failure(nowhere: Path) -> None:
    (finding,) = places.examine_data().findings
    assert finding.state == "absent"
    assert "load_fashion_mnist" in command(finding)
    # Nothing was downloaded, and nothing left behind.
    assert list(nowhere.iterdir()) == []


def test_data_that_were_altered_are_told_by_file(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bad_files(nowhere / "cache" / "parallel-core" / "fashion-mnist")
    (finding,) = places.examine_data().findings
    assert finding.state == "broken"
    assert command(finding) == f"rm -r {folder}"
    own = bad_files(nowhere / "own")
    monkeypatch.setenv("PARALLEL_CORE_DATA", str(own))
    (finding,) = places.examine_data().findings
    assert finding.advice is not None
    assert f"{own}/train-images-idx3-ubyte is not the original" in finding.advice.cause
    assert command(finding) == "unset PARALLEL_CORE_DATA"


def test_a_cache_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not even for root.
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    cache, temporary = places.examine_caches({}).findings
    assert (cache.state, temporary.state) == ("broken", "fine")
    assert command(cache) == 'export XDG_CACHE_HOME="$(mktemp -d)"'


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> None:
    monkeypatch.setattr(places, "ENOUGH_BYTES", 2**80)
    cache, _ = places.examine_caches({}).findings
    assert cache.state == "doubtful"
    assert command(cache) == f"df -h {nowhere}"


def test_ports() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = bound.getsockname()[1]
        section = examine_ports({"PORT": "8080"}, port)
    assert states(section) == {"loopback": "fine", "torchrun's port": "doubtful", "PORT": "doubtful"}
    assert command(named(section, "torchrun's port")).startswith("torchrun --master-port ")
    assert str(port) not in command(named(section, "torchrun's port"))
    assert command(named(section, "PORT")) == "unset PORT"
    assert states(examine_ports({}, port)) == {"loopback": "fine", "torchrun's port": "fine"}


@pytest.mark.parametrize(
    ("attempts", "state", "mended_by"),
    [
        ([MXNET, TORCH], "fine", None),
        ([TORCH], "absent", "parallel-core compare --backends torch"),
        ([Attempt("mxnet", (), ())], "absent", None),
    ],
)
def test_what_could_be_compared(attempts: list[Attempt], state: str, mended_by: str | None, tmp_path: Path) -> None:
    cells, results = examine_comparing(attempts, tmp_path).findings
    assert cells.state == state
    assert mended_by == (cells.advice.command if cells.advice else None)
    assert results.state == "fine"
    assert examine_comparing(attempts, Path("/proc/nothing")).findings[1].state == "doubtful"
