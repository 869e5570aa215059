"""Result files are whole or not there, and a path that cannot be written is found before the run."""

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from parallel_core.system.errors import RequestError
from parallel_core.system.files import check_outputs, check_writable, remove_unfinished, write_whole


def test_a_file_is_replaced_when_it_is_complete_and_a_link_is_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "result.json", tmp_path / "link.json"
    path.write_text("old")
    link.symlink_to(path)
    for target, content in ((path, b"new"), (link, b"newer")):
        check_writable(target)
        write_whole(target, lambda stream, content=content: stream.write(content))
        assert path.read_bytes() == content
    assert link.is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link.json", "result.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_a_failure_leaves_the_older_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    """A full disk is told with the file that it has no room for."""
    path = tmp_path / "result.json"
    path.write_text("old")

    def fail(stream: BinaryIO) -> None:
        stream.write(b"half")
        raise error

    with pytest.raises(type(error)) as raised:
        write_whole(path, fail)
    assert getattr(raised.value, "filename", str(path)) == str(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_devices_are_written_to_and_stay_devices() -> None:
    null = Path("/dev/null")
    check_writable(null)
    write_whole(null, lambda stream: stream.write(b"anything"))
    assert null.is_char_device()


def test_a_pipe_is_written_to_by_the_name_of_its_descriptor() -> None:
    reading, writing = os.pipe()
    path = Path(f"/dev/fd/{writing}")
    check_outputs(path)
    write_whole(path, lambda stream: stream.write(b"anything"))
    os.close(writing)
    assert os.read(reading, 100) == b"anything"
    os.close(reading)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing/result.json", "No such file"), (".", "is a directory"), ("file/x", "Not a directory")],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=f"cannot write to .*: {reason}"):
        check_writable(tmp_path / name)


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("kept.npz", ".kept.npz.abcdefgh", ".other.npz.abcdefgh", "kept.npz.1"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path / "kept.npz")
    assert sorted(one.name for one in tmp_path.iterdir()) == [".other.npz.abcdefgh", "kept.npz", "kept.npz.1"]
