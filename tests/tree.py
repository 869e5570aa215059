"""The tree as git tracks it: what programs and builds leave beside the source is no part of it.

`python -m tests.tree FILE` prints where the tests of a module are.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "nearest_tests", "tracked"]

ROOT = Path(__file__).parent.parent


@cache
def tracked(*folders: str, suffix: str = "") -> tuple[Path, ...]:
    """Return the tracked files whose names end in `suffix`, of the given folders or of the whole
    tree, in order.
    """
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--", *folders]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        # An unpacked sdist holds what git tracked, and no more.
        paths = []
        for folder in folders or (".",):
            paths += (ROOT / folder).rglob("*")
        paths = [path for path in paths if "__pycache__" not in path.parts]
    files = [path for path in paths if path.name.endswith(suffix)]
    # A file that is removed and not yet committed is tracked still.
    return tuple(sorted(file for file in files if file.is_file()))


def nearest_tests(path: Path) -> Path:
    """Return the test file or folder of a module, given by its path from the root.

    Of `system/files.py` that is `tests/system/test_files.py`, else the folder `tests/system/files`,
    else `tests/system`, and so on upward.
    """
    if path.parts[0] == "tests":
        return path
    beside = ROOT / "tests" / path.parent
    for candidate in (beside / f"test_{path.name}", beside / path.stem, beside):
        if candidate.exists():
            return candidate.relative_to(ROOT)
    return nearest_tests(path.parent)


if __name__ == "__main__":
    print(nearest_tests(Path(sys.argv[1])), "tests/golden")
