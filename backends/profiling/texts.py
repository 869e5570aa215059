"""Many texts, compressed some thousand at a time.

The arguments of a trace's events repeat themselves: a million take more memory than all other
columns together, and compressed a twentieth of that. Level 1 costs as little as copying them.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, final

import numpy as np

BLOCK = 10_000
"""At most so many texts are compressed together, and decompressed at a time."""
FASTEST = 1


class _Block(NamedTuple):
    """Some texts, one after the other, compressed."""

    compressed: bytes
    bounds: np.ndarray
    """Where each text begins, and where the last one ends."""

    def texts_at(self, places: np.ndarray) -> list[bytes]:
        """Return the texts at some places of the block."""
        joined = zlib.decompress(self.compressed)
        begins, ends = self.bounds[places].tolist(), self.bounds[places + 1].tolist()
        return [joined[begin:end] for begin, end in zip(begins, ends, strict=True)]


@final
class Texts:
    """A column of texts: an entry for each row, as in an array of them."""

    def __init__(
        self, blocks: tuple[_Block, ...], block_of: np.ndarray, place_of: np.ndarray
    ) -> None:
        self._blocks = blocks
        self._block_of = block_of
        self._place_of = place_of
        """Within the block."""

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> "Texts":
        """Compress texts."""
        blocks = []
        for first in range(0, len(texts), BLOCK):
            own = texts[first : first + BLOCK]
            lengths = np.fromiter(map(len, own), np.int64, len(own))
            bounds = np.concatenate(([0], np.cumsum(lengths)))
            blocks.append(_Block(zlib.compress(b"".join(own), FASTEST), bounds.astype(np.int32)))
        rows = np.arange(len(texts), dtype=np.int32)
        return cls(tuple(blocks), rows // BLOCK, rows % BLOCK)

    @classmethod
    def joined(cls, parts: Iterable["Texts"]) -> "Texts":
        """Put several columns one after the other."""
        blocks: list[_Block] = []
        block_of, place_of = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        for part in parts:
            block_of.append(part._block_of + len(blocks))
            place_of.append(part._place_of)
            blocks += part._blocks
        return cls(tuple(blocks), np.concatenate(block_of), np.concatenate(place_of))

    def __len__(self) -> int:
        return len(self._block_of)

    def __getitem__(self, where: "np.ndarray | slice") -> "Texts":
        """Return the rows that a mask selects, or those at some places; nothing is copied."""
        return Texts(self._blocks, self._block_of[where], self._place_of[where])

    def by_block(self) -> Iterator[tuple[np.ndarray, list[bytes]]]:
        """Yield all texts, some at a time: their rows, and the texts."""
        order = np.argsort(self._block_of, kind="stable")
        bounds = np.searchsorted(self._block_of[order], np.arange(len(self._blocks) + 1))
        for block, first, end in zip(self._blocks, bounds[:-1], bounds[1:], strict=True):
            if first < end:
                rows = order[first:end]
                yield rows, block.texts_at(self._place_of[rows])

    def tolist(self) -> list[bytes]:
        """Return all texts, in the order of the rows."""
        texts = [b""] * len(self)
        for rows, own in self.by_block():
            for row, text in zip(rows.tolist(), own, strict=True):
                texts[row] = text
        return texts

    def holding(self, part: bytes) -> np.ndarray:
        """Return the mask of the texts in which another one lies."""
        holds = np.zeros(len(self), bool)
        for rows, own in self.by_block():
            holds[rows] = [part in text for text in own]
        return holds
