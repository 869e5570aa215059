"""Check what a command says that is refused."""

import subprocess


def assert_refused(done: "subprocess.CompletedProcess[str]", words: str = "") -> None:
    """Check that a command said nothing but one line, which holds some words, and had status 2."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert words in done.stderr
