"""Variables that are set are reported with what they do, and those that do harm with how to unset them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.doctor.settings import examine_settings
from tests.parallel_core.doctor.findings import MXNET, TORCH, command, named, states


@pytest.mark.parametrize(
    ("environment", "name", "state", "expected_command"),
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
        ({"OPENBLAS_CORETYPE": "Haswell"}, "OPENBLAS_CORETYPE", "fine", None),
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
    environment: dict[str, str], name: str, state: str, expected_command: str | None
) -> None:
    section = examine_settings(environment, [MXNET])
    finding = named(section, name)
    assert finding.state == state
    assert expected_command is None if finding.diagnosis is None else finding.diagnosis.command == expected_command
    assert list(states(section)).count(name) == 1
    # Nothing else is wrong.
    assert [other for other, found in states(section).items() if found != "fine"] == ([] if state == "fine" else [name])


def test_a_misspelt_engine_breaks_nothing_without_mxnet() -> None:
    section = examine_settings({"MXNET_ENGINE_TYPE": "NaivEngine"}, [TORCH])
    assert named(section, "MXNET_ENGINE_TYPE").state == "doubtful"


VARIABLES = st.sampled_from(["OMP_NUM_THREADS", "MXNET_ENGINE_TYPE", "MXNET_X", "DMLC_ROLE", "RANK", "PS_VERBOSE"])


@given(st.dictionaries(VARIABLES | st.text(), st.text()))
def test_commands_only_ever_unset_what_is_set(environment: dict[str, str]) -> None:
    for finding in examine_settings(environment, [MXNET]).findings:
        if finding.diagnosis is not None:
            assert command(finding).split()[0] == "unset"
            assert set(command(finding).split()[1:]) & set(environment)
