"""Result files are whole or not there, and a path that cannot be written is found before the run."""

import errno
import os
from pathlib import Path

import pytest

from parallel_core.errors import RequestError
from parallel_core.system.files import check_writable, remove_unfinished, write_whole


def test_a_file_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    write_whole(path, lambda stream: stream.write(b"new"))
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_failure_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")

    def fail(stream: object) -> None:
        stream.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, fail)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_full_disk_names_the_file_that_it_has_no_room_for(tmp_path: Path) -> None:
    def fill(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left on device") as full:
        write_whole(tmp_path / "result.json", fill)
    assert full.value.filename == str(tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, lambda stream: stream.write(b"new"))
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_devices_are_written_to_and_stay_devices() -> None:
    null = Path("/dev/null")
    check_writable(null)
    write_whole(null, lambda stream: stream.write(b"anything"))
    assert null.is_char_device()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing/result.json", "No such file"), (".", "is a directory"), ("file/x", "Not a directory")],
)
def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=f"cannot write to .*: {reason}"):
        check_writable(tmp_path / name)


def test_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    write_whole(path, lambda stream: stream.write(b"whole"))
    for name in (".kept.npz.abcdefgh", ".other.npz.abcdefgh", "kept.npz.1"):
        (tmp_path / name).write_bytes(b"half")
    remove_unfinished(path)
    assert sorted(one.name for one in tmp_path.iterdir()) == [".other.npz.abcdefgh", "kept.npz", "kept.npz.1"]
