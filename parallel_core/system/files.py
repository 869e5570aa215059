"""Result files: written whole or not at all, and checked to be writable before the run."""

import contextlib
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from parallel_core.system.errors import RequestError

STANDARD_OUTPUT = Path("-")
CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""The escapes of control characters that JSON allows, and that a terminal would obey."""
RUNS = Path("runs")
"""The folder, in the current directory, of files that the program names itself; git ignores it."""


def check_outputs(*outputs: Path | None, others: Iterable[Path] = ()) -> None:
    """Raise RequestError if an output cannot be written, or is another output or one of `others`,
    which are read or written too.
    """
    conflicts: dict[str, str] = {}
    for other in others:
        conflict = f"{other} is read or written already: give another output"
        conflicts[os.path.realpath(other)] = conflict
    for path in outputs:
        if path is None:
            continue
        real_path = str(path) if path == STANDARD_OUTPUT else os.path.realpath(path)
        if real_path in conflicts:
            raise RequestError(conflicts[real_path])
        conflicts[real_path] = f"two files would be written to {path}: give each its own"
        check_writable(path)


def check_writable(path: Path) -> None:
    """Raise RequestError if `write_whole` could not write to this path; nothing is left behind."""
    if path == STANDARD_OUTPUT:
        return
    try:
        target = _target(path)
        if target.is_dir():
            raise IsADirectoryError(None, "is a directory")
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(None, "permission denied")
        if not _is_special(target):
            with tempfile.TemporaryFile(dir=target.parent):
                pass
    except OSError as error:
        raise RequestError(f"cannot write to {path}: {error.strerror or error}") from error


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless they exist; raises RequestError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror}") from error


def make_dated_folder(parent: Path, kind: str) -> Path:
    """Make a new folder for the files of a run of some kind, and return it.

    Its name is the kind and the time, and a number if another such run began in the same second.
    Raises RequestError if it cannot be made.
    """
    make_folder(parent)
    name = f"{kind}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    folder, number = parent / name, 1
    while True:
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            folder = parent / f"{name}-{number}"
        except OSError as error:
            raise RequestError(f"cannot make the folder {folder}: {error.strerror}") from error
        else:
            return folder


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file beside `path`, and move it to `path` when it is complete.

    The path `-` is standard output. A device or pipe is written to directly. If writing fails,
    raises OSError, and an older file stays as it was.
    """
    if path == STANDARD_OUTPUT:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    target = _target(path)
    if _is_special(target):
        with target.open("wb") as stream:
            write(stream)
        return
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
            stream.flush()
            # Without this, a crash of the machine could leave an empty file.
            os.fsync(stream.fileno())
        # mkstemp makes private files, but a result should be as readable as any other new file.
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError) and error.filename is None:
            # The error of a full disk names no file.
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_json(path: Path | None, document: object) -> None:
    """Write a value as JSON, if a path is given; see `write_whole`."""
    if path is None:
        return
    text = json.dumps(document, indent=1, ensure_ascii=False).translate(CONTROLS) + "\n"
    # The value may contain a command line, with bytes that are not text.
    content = text.encode(errors="replace")
    write_whole(path, lambda stream: stream.write(content))


def remove_unfinished(path: Path) -> None:
    """Remove the files that killed calls of `write_whole` left beside a path.

    No other process may be writing to the path.
    """
    target = Path(os.path.realpath(path))
    for unfinished in target.parent.glob(f".{target.name}.*"):
        unfinished.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Return the file that a path leads to through links; a device or pipe is returned as it is.

    The links of /dev/stdout, for example, lead to `pipe:[1234]`, which is no path.
    """
    if _is_special(path):
        return path
    # Path.resolve() raises RuntimeError for links in a circle (Python 3.12 and earlier).
    return Path(os.path.realpath(path))


def _is_special(target: Path) -> bool:
    """Return whether a path is a device or a pipe, which renaming a file over it would replace."""
    return target.exists() and not target.is_file()
