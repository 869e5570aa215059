"""Make shared libraries of a few lines of C."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("driver_without_gpus.c")


def compile_library(library: Path, source: str, needed: Sequence[Path] = ()) -> None:
    """Compile C to a library whose soname is its file's name, and which needs others; skip without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) is installed")
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(compiler, "-x", "c", "-", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", str(library)),
            # Those that the needed ones need are nobody's business before all are loaded.
            *("-x", "none", "-Wl,--no-as-needed,--allow-shlib-undefined", *map(str, needed)),
        ],
        input=source,
        text=True,
        check=True,
    )
