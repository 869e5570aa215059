"""The sdist and the wheel hold what they should, and the wheel works in an environment that sees no
checkout.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_packaging import read
from tests.tree import ROOT, tracked

pytestmark = pytest.mark.long

LEFT_OUT = (".ci/", ".editorconfig", ".gitignore", ".pre-commit-config.yaml")
"""Of a checkout, what the sdist does not hold."""
CODE_AND_DATA = {".py", ".pyi", ".typed", ".css", ".js", ".jinja", ".md"}

VERSION = read(ROOT)["metadata"]["version"]

Installed = Callable[..., "subprocess.CompletedProcess[str]"]


def checkout() -> set[str]:
    """Return the names of the files that git knows."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a checkout says which files are its own")
    return {str(path.relative_to(ROOT)) for path in tracked()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and a wheel, built from a copy of the files that git knows."""
    copy, dist = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for name in checkout():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    subprocess.run(["make", "-C", str(copy), "absolute-links"], check=True, capture_output=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return dist


def test_the_wheel_holds_the_packages_their_data_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    metadata = f"parallel_core-{VERSION}.dist-info/"
    packed = {name for name in names if not name.startswith(metadata)}
    assert packed == {
        name for name in checkout() if name.startswith(("backends/", "parallel_core/"))
    }
    assert {Path(name).suffix for name in packed} == CODE_AND_DATA
    files = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
    assert {name.removeprefix(metadata) for name in names - packed} == files


def test_links_and_pictures_of_the_readme_lead_to_the_repository(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        readme = wheel.read(f"parallel_core-{VERSION}.dist-info/METADATA").decode()
    addresses = re.findall(r"\]\(([^)]*)\)", readme)
    relative = re.findall(r"\]\(([^):]*)\)", (ROOT / "README.md").read_text())
    assert len(relative) > 10
    assert len(addresses) >= len(relative)
    assert all(address.startswith("https://") for address in addresses)
    _, repository = read(ROOT)["metadata"]["project_urls"].split("Repository = ")
    (picture,) = re.findall(r"!\[[^]]*\]\(([^)]*)\)", readme)
    assert picture.startswith(f"{repository}/raw/HEAD/benchmarks/")
    assert f"]({repository}/blob/HEAD/CONTRIBUTING.md)" in readme


def test_the_sdist_holds_the_checkout_with_its_tests_and_a_package_index_would_take_both(
    built: Path,
) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {member.name.partition("/")[2] for member in sdist if member.isfile()}
    wanted = {name for name in checkout() if not name.startswith(LEFT_OUT)}
    written = {
        name for name in names if name == "PKG-INFO" or name.startswith("parallel_core.egg-info/")
    }
    # Setuptools' own list of what it packed.
    assert names - written - {"MANIFEST.in"} == wanted - {"MANIFEST.in"}
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with the packages that run the tests; its folder of
    programs.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python, wheel = folder / "bin/python", next(built.glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    install = [*pip, "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    # A path that a .pth file adds has its own .pth files ignored, and with them the editable
    # checkout.
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    (Path(own) / "packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Installed:
    """Run a program of that environment in an empty folder."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(
        program: str, *arguments: str, statuses: tuple[int, ...] = (0,)
    ) -> "subprocess.CompletedProcess[str]":
        command = [str(environment / program), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode in statuses, done.stdout[-2000:] + done.stderr[-2000:]
        return done

    return run


def test_it_sees_no_checkout_and_has_list_doctor_and_conformance(
    installed: Installed, environment: Path
) -> None:
    code = "import sys, backends, parallel_core as own; print(own, backends, *sys.path)"
    imported = installed("python", "-c", code).stdout
    assert imported.count(f" from '{environment.parent}/") == 2
    assert str(ROOT) not in imported.split()
    assert "overlap" in installed("parallel-core", "list").stdout
    doctor = ("doctor", "--json", "-")
    examined = installed("parallel-core", *doctor, statuses=(0, 1)).stdout
    assert json.loads(examined)["parallel_core"] == VERSION
    conformance = ("conformance", "--backend", "numpy", "--programs", "3")
    assert "3 programs" in installed("parallel-core", *conformance).stdout


def test_compare_writes_its_page(
    installed: Installed, require: Callable[[str], None], tmp_path: Path
) -> None:
    require("torch")
    command = "compare overlap --quick --backends torch --engines async --rounds 1 --minutes 0.3"
    # 3 if the machine was too disturbed for a figure to be true.
    installed("parallel-core", *command.split(), "--out", "compared", statuses=(0, 3))
    page = (tmp_path / "compared/report.html").read_text()
    assert "<style>" in page
    assert "overlap" in page
