"""The text of a trace file, plain or compressed, block by block, so that a long one is never in memory as a whole."""

import codecs
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

__all__ = ["text_blocks"]

BLOCK_BYTES = 1 << 20
"""How many are read at a time."""
COMPRESSED_BLOCK_BYTES = 1 << 16
"""Traces shrink to a twentieth, so that this much becomes about a block."""

GZIP_MAGIC = b"\x1f\x8b"
GZIP_FORMAT = 16 + zlib.MAX_WBITS


def text_blocks(path: Path) -> Iterator[str]:
    """Yield a file's text; bytes that are not UTF-8 become U+FFFD, and a compressed file may be cut off anywhere.

    Raises OSError if the file cannot be read, and ValueError if nothing of it can be decompressed.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    with path.open("rb") as stream:
        magic = stream.read(len(GZIP_MAGIC))
        compressed = magic == GZIP_MAGIC
        read = partial(stream.read, COMPRESSED_BLOCK_BYTES if compressed else BLOCK_BYTES)
        blocks = chain([magic], iter(read, b""))
        for block in _inflated(blocks) if compressed else blocks:
            yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def _inflated(blocks: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(GZIP_FORMAT)
    has_data = False
    for block in blocks:
        rest = block
        while rest:
            if inflater.eof:
                inflater = zlib.decompressobj(GZIP_FORMAT)
            try:
                inflated = inflater.decompress(rest)
            except zlib.error as error:
                if not has_data:
                    raise ValueError(f"its compressed data are damaged ({error})") from error
                return
            has_data = has_data or bool(inflated)
            yield inflated
            rest = inflater.unused_data
