"""What others take of the cores; data, without a download; settings that harm."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.doctor import host
from parallel_core.system import machine
from parallel_core.training import dataset
from tests.parallel_core.doctor.findings import by_name, cause, command

QUIET = machine.MachineWatch(1.0, 2, 0.0, 0.0, 0.0, None, None)


@pytest.mark.parametrize(
    ("others_share", "state"), [(None, "absent"), (0.01, "fine"), (0.45, "doubtful")]
)
def test_what_other_programs_take_of_the_cores(others_share: float | None, state: str) -> None:
    finding = host.examine_load(replace(QUIET, others_share=others_share))
    assert finding.state == state
    assert finding.figures["others_share"] == others_share
    is_doubtful = state == "doubtful"
    assert (finding.diagnosis is not None) == is_doubtful
    assert ("45 %" in finding.text) == is_doubtful


@pytest.mark.parametrize(
    ("system", "processor", "said"),
    [
        ("Linux", "aarch64", "in an emulator only"),
        ("Darwin", "arm64", "tried on nobody's Mac"),
        ("Linux", "riscv64", "never tried on Linux on riscv64"),
    ],
)
def test_no_system_is_claimed_that_nobody_tried(
    monkeypatch: pytest.MonkeyPatch, system: str, processor: str, said: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: processor)
    assert said in cause(host.examine_system())
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert host.examine_system().state == "fine"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data anywhere, and a cache of one's own."""
    monkeypatch.setattr(dataset, "DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def write_damaged_data(folder: Path) -> Path:
    """Write files of the data's names that were cut off, and return their folder."""
    folder.mkdir(parents=True)
    for name in dataset.FILES:
        (folder / name).write_bytes(b"cut off")
    return folder


def test_data_that_are_nowhere_are_no_failure(nowhere: Path) -> None:
    state = ("absent", "apt-get install dataset-fashion-mnist")
    assert by_name([host.examine_data()]) == {"Fashion-MNIST": state}
    # Nothing was downloaded, and nothing left behind.
    assert list(nowhere.iterdir()) == []


def test_damaged_data_in_the_cache_are_to_be_removed(nowhere: Path) -> None:
    folder = write_damaged_data(nowhere / "cache" / "parallel-core" / "fashion-mnist")
    assert by_name([host.examine_data()]) == {"Fashion-MNIST": ("broken", f"rm -r {folder}")}


@pytest.mark.parametrize("end", ["", "/"])
def test_a_folder_of_damaged_data_that_is_named_is_never_removed(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    folder = write_damaged_data(nowhere / "own")
    monkeypatch.setenv("PARALLEL_CORE_DATA", f"{folder}{end}")
    finding = host.examine_data()
    assert f"{folder}/train-images-idx3-ubyte is not the original" in cause(finding)
    assert by_name([finding]) == {"Fashion-MNIST": ("broken", "unset PARALLEL_CORE_DATA")}


# Of single variables: tests/golden/expected/refusals.txt.
@pytest.mark.parametrize(
    ("environment", "unset"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "unset RANK WORLD_SIZE MASTER_ADDR"),
        ({"DMLC_ROLE": "worker", "DMLC_X": "2"}, "unset DMLC_ROLE DMLC_X"),
        ({"DMLC_ROLE": "worker", "PS_VERBOSE": "2"}, "unset DMLC_ROLE PS_VERBOSE"),
    ],
)
def test_a_variable_that_harms_is_found(environment: dict[str, str], unset: str) -> None:
    (finding,) = host.examine_settings({"HOME": "/root", **environment})
    first_name, *_ = environment
    assert finding.name == first_name
    assert finding.state == "doubtful"
    assert command(finding) == unset
    for name, value in environment.items():
        assert f"{name}={value}" in cause(finding)


@pytest.mark.parametrize(
    "environment",
    [
        {"CUDA_LAUNCH_BLOCKING": "0"},
        {"OMP_NUM_THREADS": "2", "MXNET_CPU_TEMP_COPY": "4", "OPENBLAS_CORETYPE": "Haswell"},
        # They are of the program `ps` and of a server that starts this process.
        {"PS_FORMAT": "pid,comm"},
        {"MASTER_PORT": "29500"},
        # The framework cannot be imported with it, and is broken.
        {"DMLC_ROLE": "server"},
    ],
)
def test_a_variable_without_effect_is_not_found(environment: dict[str, str]) -> None:
    assert list(host.examine_settings(environment)) == []


VARIABLES = st.sampled_from(["OMP_PLACES", "MXNET_X", "DMLC_ROLE", "RANK", "PS_VERBOSE"])


@given(st.dictionaries(VARIABLES | st.text(), st.text()))
def test_commands_only_ever_unset_what_is_set(environment: dict[str, str]) -> None:
    for finding in host.examine_settings(environment):
        unset, *names = str(command(finding)).split(" ")
        assert unset == "unset"
        assert {*names} <= {*environment}
