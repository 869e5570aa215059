"""What tests of CUDA libraries share: a driver that finds no GPU."""

from pathlib import Path

import pytest

from tests.backends.installation.compiler import DRIVER, compile_library


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory that holds `libcuda.so.1` and nothing else."""
    directory = tmp_path_factory.mktemp("driver")
    compile_library(directory / "libcuda.so.1", DRIVER.read_text())
    return directory
