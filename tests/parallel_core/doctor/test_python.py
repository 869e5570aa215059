"""Packages are held against what is required, commands are for this Python, and variables told with what they do."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.installation.frameworks import Diagnosis
from backends.registry import loading
from parallel_core.doctor import host
from parallel_core.doctor.host import examine_settings
from tests.parallel_core.doctor.findings import FINE, MXNET, TORCH, found


@pytest.mark.parametrize(
    ("lines", "required"),
    [
        (["click>=8", "click>=99; python_version < '3'", "click>=999; extra == 'torch'"], FINE),
        (["rich", "no-such-package>=2", "click>=999"], ("broken", "pip install 'no-such-package>=2' 'click>=999'")),
    ],
)
def test_packages_are_compared_with_what_is_required(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], required: tuple[str, str]
) -> None:
    monkeypatch.setattr(host, "requirements", lambda: lines)
    expected = {"parallel-core": FINE, "required packages": required}
    assert found(host.examine_packages()) == expected


def test_a_checkout_that_is_not_installed_says_what_it_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "installed_version", lambda _: None)
    assert any(line.startswith("click>=") for line in loading.requirements())
    assert found(host.examine_packages()) == {"parallel-core": FINE, "required packages": FINE}


def test_commands_are_for_this_python_if_the_shell_s_pip_is_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "my python"
    monkeypatch.setattr(host.sys, "executable", str(own))
    monkeypatch.setenv("PATH", "")
    bare_pip = Diagnosis("a cause", "pip uninstall --yes mxnet && pip install numpy")
    command = f"'{own}' -m pip uninstall --yes mxnet && '{own}' -m pip install numpy"
    assert host.for_this_python(bare_pip).command == command
    other = Diagnosis("a cause", "elsewhere/bin/pip install numpy")
    assert host.for_this_python(other) == other
    # A pip beside the Python that runs is its own.
    (tmp_path / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.for_this_python(bare_pip) == bare_pip


SERVER = "unset DMLC_ROLE DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_WORKER DMLC_NUM_SERVER"


@pytest.mark.parametrize(
    ("environment", "name", "state", "unset"),
    [
        ({"MXNET_ENGINE_TYPE": "NaivEngine"}, "MXNET_ENGINE_TYPE", "broken", "unset MXNET_ENGINE_TYPE"),
        ({"DMLC_ROLE": "server"}, "DMLC_ROLE", "broken", SERVER),
        ({"MXNET_ENGINE_TYPE": "NaiveEngine"}, "MXNET_ENGINE_TYPE", "fine", None),
        ({"MXNET_CPU_TEMP_COPY": "4"}, "MXNET_CPU_TEMP_COPY", "fine", None),
        ({"MXNET_OTHER": "1"}, "MXNET_OTHER", "doubtful", "unset MXNET_OTHER"),
        ({"OMP_NUM_THREADS": "2"}, "OMP_NUM_THREADS", "fine", None),
        ({"OPENBLAS_CORETYPE": "Haswell"}, "OPENBLAS_CORETYPE", "fine", None),
        ({"OMP_NUM_THREADS": "4,2"}, "OMP_NUM_THREADS", "fine", None),
        ({"OMP_NUM_THREADS": "many"}, "OMP_NUM_THREADS", "doubtful", "unset OMP_NUM_THREADS"),
        ({"MKL_NUM_THREADS": "0"}, "MKL_NUM_THREADS", "doubtful", "unset MKL_NUM_THREADS"),
        ({"GOMP_CPU_AFFINITY": "0"}, "GOMP_CPU_AFFINITY", "doubtful", "unset GOMP_CPU_AFFINITY"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "RANK", "doubtful", "unset RANK WORLD_SIZE MASTER_ADDR"),
        ({"DMLC_ROLE": "worker", "DMLC_X": "2"}, "DMLC_ROLE", "doubtful", "unset DMLC_ROLE DMLC_X"),
        ({"DMLC_ROLE": "worker", "PS_VERBOSE": "2"}, "DMLC_ROLE", "doubtful", "unset DMLC_ROLE PS_VERBOSE"),
        ({"DMLC_NUM_SERVER": "1"}, "DMLC_NUM_SERVER", "doubtful", "unset DMLC_NUM_SERVER"),
        ({"PORT": "8080"}, "PORT", "doubtful", "unset PORT"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "CUDA_LAUNCH_BLOCKING", "doubtful", "unset CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_a_variable_that_is_set_is_told_with_what_it_does(
    environment: dict[str, str], name: str, state: str, unset: str | None
) -> None:
    findings = found(examine_settings(environment, [MXNET]))
    assert findings[name] == (state, unset)
    # Nothing else is wrong.
    assert [other for other, has in findings.items() if has != FINE] == ([] if state == "fine" else [name])


def test_ps_s_format_is_none_of_mxnet_s_variables() -> None:
    assert found(examine_settings({"PS_FORMAT": "pid,comm"}, [MXNET])) == {}


def test_a_misspelt_engine_breaks_nothing_without_mxnet() -> None:
    findings = found(examine_settings({"MXNET_ENGINE_TYPE": "NaivEngine"}, [TORCH]))
    assert findings["MXNET_ENGINE_TYPE"][0] == "doubtful"


VARIABLES = st.sampled_from(["OMP_NUM_THREADS", "MXNET_ENGINE_TYPE", "MXNET_X", "DMLC_ROLE", "RANK", "PS_VERBOSE"])


@given(st.dictionaries(VARIABLES | st.text(), st.text()))
def test_commands_only_ever_unset_what_is_set(environment: dict[str, str]) -> None:
    for finding in examine_settings(environment, [MXNET]):
        if finding.diagnosis is not None:
            unset, *names = finding.diagnosis.command.split()
            assert unset == "unset"
            assert {*names} & {*environment}
