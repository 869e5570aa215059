"""Result files are whole or not there, and what stands under their names before is not lost."""

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

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


def test_a_pipe_is_written_to_by_the_name_of_its_descriptor() -> None:
    reading, writing = os.pipe()
    path = Path(f"/dev/fd/{writing}")
    check_outputs(path)
    write_whole(path, lambda stream: stream.write(b"anything"))
    os.close(writing)
    assert os.read(reading, 100) == b"anything"
    os.close(reading)


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("kept.npz", ".kept.npz.abcdefgh", ".other.npz.abcdefgh", "kept.npz.1"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path / "kept.npz")
    assert sorted(one.name for one in tmp_path.iterdir()) == [".other.npz.abcdefgh", "kept.npz", "kept.npz.1"]
