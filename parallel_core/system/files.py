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
"""The control characters that JSON may hold as they are, and that a terminal would obey."""
RUNS = Path("runs")
"""The folder, where the program is run, for what it names itself; git ignores it."""


def check_outputs(*outputs: Path | None, others: Iterable[Path] = ()) -> None:
    """Raise RequestError if an output could not be written, or is one of the other files that are
    read or written.
    """
    taken = {
        os.path.realpath(path): f"{path} is read or written already: give another output"
        for path in others
    }
    for path in outputs:
        if path is not None:
            place = str(path) if path == STANDARD_OUTPUT else os.path.realpath(path)
            if place in taken:
                raise RequestError(taken[place])
            taken[place] = f"two files would be written to {path}: give each its own"
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
    """Make a folder, and those above it, unless it exists; raises RequestError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {folder}: {error.strerror}") from error


def make_dated_folder(parent: Path, kind: str) -> Path:
    """Make a new folder for what a run of this kind writes, and return it; raises RequestError.

    Its name is the kind and the time, and a number if another of the kind began in the same second.
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
    """Let `write` fill a file beside `path` and move it there when it is complete.

    `-` is standard output; a device or pipe is written to directly. Raises OSError, and leaves an
    older file as it was.
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
            # Otherwise a crash of the machine could leave an empty file of this name.
            os.fsync(stream.fileno())
        # mkstemp makes private files; a result is as readable as any other new file.
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError) and error.filename is None:
            # A full disk names no file.
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_json(path: Path | None, document: object) -> None:
    """Write a value as JSON, if there is a path, whole or not at all; see `write_whole`."""
    if path is None:
        return
    text = json.dumps(document, indent=1, ensure_ascii=False).translate(CONTROLS) + "\n"
    # A command line in it may hold bytes that are not text.
    write_whole(path, lambda stream: stream.write(text.encode(errors="replace")))


def remove_unfinished(path: Path) -> None:
    """Remove what a killed `write_whole` left beside a path.

    No other process may be writing there.
    """
    target = Path(os.path.realpath(path))
    for unfinished in target.parent.glob(f".{target.name}.*"):
        unfinished.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Follow links to a file; what /dev/stdout leads to, `pipe:[1234]`, is no path."""
    # Path.resolve() raises RuntimeError where links go in a circle (Python 3.12 and earlier).
    return path if _is_special(path) else Path(os.path.realpath(path))


def _is_special(target: Path) -> bool:
    # Renaming a file over /dev/null would replace the device.
    return target.exists() and not target.is_file()
