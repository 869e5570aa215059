"""Results that cannot be written are no half results."""

import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.parallel_core.jobs.failures.jobs import start

pytestmark = pytest.mark.long

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
# A file system of one page, which is taken; what it holds is listed after the job.
ON_A_FULL_DISK = (
    'mount -t tmpfs -o size=4k none "$0" && head -c 4096 /dev/zero > "$0/all" && "$@"; '
    'status=$?; echo "files:"; ls -A "$0"; exit $status'
)


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    mount: Sequence[str] = (*NAMESPACE, "mount", "-t", "tmpfs", "none", "/tmp")
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def test_the_disk_is_full(require: Callable[[str], None], tmp_path: Path) -> None:
    require("torch")
    mounted = can_mount()
    fault = "only_tells" if mounted else "may_write_little"
    before = (*NAMESPACE, "sh", "-c", ON_A_FULL_DISK, str(tmp_path / "files")) if mounted else ()
    with start(fault, "torch", tmp_path, rank=0, json=True, before=before) as job:
        ended = job.end()
        assert list(job.files.iterdir()) == []
    assert ended.status == 1
    assert ended.verdict.startswith(f"rank 0 on {socket.gethostname()}: ")
    assert "No space left on device" in ended.verdict or "File too large" in ended.verdict
    if mounted:
        assert ended.output.partition("files:\n")[2] == "all\n"
