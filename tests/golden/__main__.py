"""`python -m tests.golden`: write what commands say today to `expected/`; `git diff` shows it."""

from tests.golden.documents import DOCUMENTS, EXPECTED

documents = {name: make() for name, make in DOCUMENTS.items()}
for path in EXPECTED.iterdir():
    path.unlink()
for name, text in documents.items():
    (EXPECTED / name).write_text(text)
