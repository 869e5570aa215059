"""What commands say of stored inputs is what `expected/` holds.

After a change that is meant: `python -m tests.golden`, and read `git diff`.
"""

import pytest

from tests.golden.documents import DOCUMENTS, EXPECTED


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_command_says_what_is_kept(name: str) -> None:
    assert DOCUMENTS[name]().splitlines() == (EXPECTED / name).read_text().splitlines()


def test_no_file_is_kept_that_nothing_makes() -> None:
    assert {path.name for path in EXPECTED.iterdir()} == DOCUMENTS.keys()
