"""Many texts in little memory: a column of them, compressed 1,000 at a time.

The arguments of a trace's events repeat themselves: a million take more memory than all other
columns together, and compressed a twentieth of that. Level 1 costs as little as copying them.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, final

import numpy as np

BLOCK = 1_000
"""The most texts that are compressed together, and decompressed at a time."""
FASTEST = 1


class _Block(NamedTuple):
    """Consecutive texts, joined and compressed."""

    compressed: bytes
    bounds: np.ndarray
    """Where each text begins in the joined text, and, at the end, where the last one ends."""

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> "_Block":
        """Compress texts."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        return cls(zlib.compress(b"".join(texts), FASTEST), bounds.astype(np.int32))

    def texts_at(self, positions: np.ndarray) -> list[bytes]:
        """Return the texts at these positions of the block."""
        joined = zlib.decompress(self.compressed)
        begins = self.bounds[positions].tolist()
        ends = self.bounds[positions + 1].tolist()
        return [joined[begin:end] for begin, end in zip(begins, ends, strict=True)]


@final
class Texts:
    """A column of texts: an entry for each row, as in an array of them.

    Each row has the number of a block and a position in that block.
    """

    def __init__(
        self, blocks: tuple[_Block, ...], block_of: np.ndarray, position_of: np.ndarray
    ) -> None:
        self._blocks = blocks
        self._block_of = block_of
        self._position_of = position_of

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> "Texts":
        """Compress texts, a row for each."""
        firsts = range(0, len(texts), BLOCK)
        blocks = tuple(_Block.of(texts[first : first + BLOCK]) for first in firsts)
        rows = np.arange(len(texts), dtype=np.int32)
        return cls(blocks, rows // BLOCK, rows % BLOCK)

    @classmethod
    def joined(cls, columns: Iterable["Texts"]) -> "Texts":
        """Put several columns one after the other."""
        blocks: list[_Block] = []
        block_of = [np.zeros(0, np.int32)]
        position_of = [np.zeros(0, np.int32)]
        for column in columns:
            # The column's blocks are numbered on from those before.
            block_of.append(column._block_of + len(blocks))
            position_of.append(column._position_of)
            blocks += column._blocks
        return cls(tuple(blocks), np.concatenate(block_of), np.concatenate(position_of))

    def __len__(self) -> int:
        return len(self._block_of)

    def __getitem__(self, where: "np.ndarray | slice") -> "Texts":
        """Return the rows that a mask selects, or those at some positions; nothing is copied."""
        return Texts(self._blocks, self._block_of[where], self._position_of[where])

    def by_block(self) -> Iterator[tuple[np.ndarray, list[bytes]]]:
        """Yield the numbers of the rows that lie in one block, with their texts, for each block."""
        rows_by_block = np.argsort(self._block_of, kind="stable")
        # The rows of block n begin at the n-th bound, and end at the next one.
        block_numbers = np.arange(len(self._blocks) + 1)
        bounds = np.searchsorted(self._block_of[rows_by_block], block_numbers).tolist()
        for number, block in enumerate(self._blocks):
            rows = rows_by_block[bounds[number] : bounds[number + 1]]
            if len(rows):
                yield rows, block.texts_at(self._position_of[rows])

    def tolist(self) -> list[bytes]:
        """Return all texts, in the order of the rows."""
        texts = [b""] * len(self)
        for rows, texts_of_rows in self.by_block():
            for row, text in zip(rows.tolist(), texts_of_rows, strict=True):
                texts[row] = text
        return texts
