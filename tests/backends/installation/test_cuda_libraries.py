"""The CUDA libraries are found in their wheels: made-up ones, which need each other as the real
ones do.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.installation.frameworks import install_command
from backends.mxnet.installation import CPU_ENVIRONMENT, WHEELS, Wheel
from tests.backends.conftest import compile_library
from tests.conftest import RunPython

NEEDED_BY = {
    "libcublas.so.11": ["libcublasLt.so.11"],
    "libcusolver.so.11": ["libcublas.so.11", "libcublasLt.so.11"],
}
SONAMES = [soname for wheel in WHEELS for soname in wheel.sonames]
NCCL = "nvidia/nvidia-nccl-cu11/lib/libnccl.so.2"
REINSTALL = "pip install --force-reinstall --no-deps 'nvidia-nccl-cu11==2.21.5'"

# MXNet's Python package is as good as this one line.
IMPORT = (
    "import ctypes, pathlib; ctypes.CDLL(str(pathlib.Path(__file__).with_name('libmxnet.so')))\n"
)

LIBRARIES = "backends.mxnet.installation.load_cuda_libraries()"
LOAD = """
import sys
import backends, backends.mxnet.installation, backends.mxnet.loading
from backends.installation.frameworks import InstallationError
sys.path[:] = [{site!r}, *(one for one in sys.path if not one.endswith('-packages'))]
try:
    {what}
    {then}
except InstallationError as error:
    print(f"{{error.diagnosis.code}}: {{error}}")
"""


def install(site: Path, name: str, version: str, *files: Path) -> None:
    """Write a distribution's list of its files, as pip does."""
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{file.relative_to(site)},sha256=,{file.stat().st_size}\n" for file in files]
    (metadata / "RECORD").write_text("".join(lines))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory in which MXNet's CUDA build and all wheels are installed."""
    site = tmp_path_factory.mktemp("wheels")
    libraries: dict[str, Path] = {}
    for wheel in WHEELS:
        for soname in wheel.sonames:
            library = site / "nvidia" / wheel.name / "lib" / soname
            needed = [libraries[needed_soname] for needed_soname in NEEDED_BY.get(soname, [])]
            compile_library(library, "", needed)
            libraries[soname] = library
        install(site, wheel.name, "11.0", *(libraries[soname] for soname in wheel.sonames))
    compile_library(site / "mxnet" / "libmxnet.so", "", list(libraries.values()))
    (site / "mxnet" / "__init__.py").write_text(IMPORT)
    install(site, "mxnet-cu112", "1.9.1", site / "mxnet" / "__init__.py")
    return site


@pytest.fixture
def site(wheels: Path, tmp_path: Path) -> Path:
    """A copy of the directory, to take things away from."""
    return shutil.copytree(wheels, tmp_path / "site")


Load = Callable[..., str]


@pytest.fixture
def load(run_python: RunPython, driver: Path, site: Path) -> Load:
    """Return a function that loads the libraries in `site` in a fresh process.

    It returns the text that the process prints. The system's loader knows the directories that are
    given, by default that of the driver.
    """

    def load_in_process(
        *directories: Path, what: str = LIBRARIES, then: str = "print('loaded')"
    ) -> str:
        known_directories = directories or (driver,)
        library_path = ":".join(str(directory) for directory in known_directories)
        code = LOAD.format(site=str(site), what=what, then=then)
        completed = run_python(code, LD_LIBRARY_PATH=library_path)
        return completed.stdout.strip()

    return load_in_process


def uninstall(site: Path, name: str) -> None:
    """Remove a wheel's libraries and its metadata."""
    shutil.rmtree(site / "nvidia" / name)
    (metadata,) = site.glob(f"{name.replace('-', '_')}-*.dist-info")
    shutil.rmtree(metadata)


def test_every_library_comes_out_of_its_wheel_and_mxnet_can_be_imported(
    load: Load, run_python: RunPython, site: Path
) -> None:
    completed = run_python("import mxnet", check=False, PYTHONPATH=str(site))
    assert "cannot open shared object file" in completed.stderr
    mapped_files = load(then="import mxnet; print(open('/proc/self/maps').read())")
    assert f"{site}/nvidia" in mapped_files
    missing = [soname for soname in SONAMES if f"/lib/{soname}\n" not in mapped_files]
    assert missing == []


def test_nothing_is_asked_of_an_environment_without_the_cuda_build(
    load: Load, site: Path, tmp_path: Path
) -> None:
    shutil.rmtree(site / "mxnet_cu112-1.9.1.dist-info")
    install(site, "mxnet", "1.9.1")
    printed = load(tmp_path, then="print('nvidia' in open('/proc/self/maps').read())")
    assert printed == "False"


def test_the_driver_is_said_before_mxnet_is_imported(load: Load, tmp_path: Path) -> None:
    # This machine's own driver has another name.
    library = "libcuda_of_nobody.so.1"
    rename = f"backends.mxnet.installation.DRIVER = {library!r}; "
    for what in (LIBRARIES, "backends.mxnet.loading.load(1, 'cpu', 'sync', 1)"):
        message = load(tmp_path, what=rename + what)
        assert message.startswith("driver-missing: ")
        assert library in message
        assert message.endswith(CPU_ENVIRONMENT)
    (tmp_path / library).write_bytes(bytes(1000))
    message = load(tmp_path, what=rename + LIBRARIES)
    assert message.startswith("driver-missing: ")
    assert "invalid ELF header" in message


# A wheel with two libraries that others need, and several wheels; of other CUDAs, these libraries
# have other names.
@pytest.mark.parametrize("missing", [WHEELS[2:3], WHEELS[:2]])
def test_missing_wheels_are_said_at_once_with_their_libraries_and_the_command(
    load: Load, site: Path, missing: tuple[Wheel, ...]
) -> None:
    for wheel in missing:
        uninstall(site, wheel.name)
    # Only the missing libraries are named, though libraries that are there need them.
    needed = []
    for wheel in missing:
        needed += [f"{soname} ({wheel.requirement})" for soname in wheel.sonames]
    message = load()
    assert message.startswith("libraries-missing: ")
    assert message.endswith(f" {', '.join(needed)}: {install_command('mxnet-cu112')}")


def test_cudnn_9_is_none_that_can_be_used(load: Load, site: Path) -> None:
    uninstall(site, "nvidia-cudnn-cu11")
    cudnn = site / "nvidia" / "nvidia-cudnn-cu11" / "lib" / "libcudnn.so.9"
    compile_library(cudnn, "")
    install(site, "nvidia-cudnn-cu11", "9.1", cudnn)
    message = load()
    assert message.startswith("libraries-missing: ")
    assert " libcudnn.so.8 (nvidia-cudnn-cu11<9): " in message


def test_without_wheels_the_system_s_libraries_are_taken(
    load: Load, site: Path, driver: Path, tmp_path: Path
) -> None:
    system = tmp_path / "cuda" / "lib64"
    system.mkdir(parents=True)
    for wheel in WHEELS:
        for soname in wheel.sonames:
            shutil.move(site / "nvidia" / wheel.name / "lib" / soname, system)
        uninstall(site, wheel.name)
    assert load(driver, system, then="import mxnet; print(mxnet.__name__)") == "mxnet"


def test_an_nccl_of_another_cuda_over_ours_is_said_and_ours_over_it_is_loaded(
    load: Load, site: Path
) -> None:
    library = site / NCCL
    # Both packages list the file, and it is still ours.
    install(site, "nvidia-nccl-cu12", "2.27", library)
    assert load() == "loaded"

    library.write_bytes(library.read_bytes() + b"of CUDA 12")
    message = load()
    assert message.startswith(f"libraries-changed: {NCCL} of nvidia-nccl-cu11 ")
    assert message.endswith(f": pip uninstall --yes nvidia-nccl-cu12 && {REINSTALL}")


def test_a_library_that_is_cut_off_removed_or_damaged_is_said(load: Load, site: Path) -> None:
    library = site / NCCL
    size = library.stat().st_size

    library.write_bytes(b"")
    messages = [load()]
    library.unlink()
    # Later Pythons, which MXNet has no package for, list no file that is gone.
    if sys.version_info < (3, 12):
        messages.append(load())
    library.write_bytes(bytes(size))
    damaged = load()

    for message in (*messages, damaged):
        assert message.startswith("libraries-changed: ")
        assert message.endswith(f": {REINSTALL}")
    assert all(NCCL in message for message in messages)
    assert "libnccl.so.2" in damaged
    assert "invalid ELF header" in damaged


def test_both_builds_of_mxnet_are_one_too_many(load: Load, site: Path) -> None:
    install(site, "mxnet", "1.9.1")
    message = load()
    assert message.startswith("libraries-changed: ")
    command = f"pip uninstall --yes mxnet mxnet-cu112 && {install_command('mxnet-cu112')}"
    assert message.endswith(f": {command}")
