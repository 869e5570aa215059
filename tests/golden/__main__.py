"""`python -m tests.golden`: write what commands say today to `expected/`; `git diff` shows it."""

from tests.golden.documents import DOCUMENTS, EXPECTED

for path in EXPECTED.iterdir():
    path.unlink()
for name, make in DOCUMENTS.items():
    (EXPECTED / name).write_text(make())
