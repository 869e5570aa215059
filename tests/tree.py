"""The tree as git tracks it: what programs and builds leave beside the source is no part of it."""

import subprocess
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "tracked"]

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
