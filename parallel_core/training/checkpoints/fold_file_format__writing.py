"""A checkpoint as bytes: NumPy's own archive of arrays (`numpy.load` reads it), each member with its CRC-32."""

import io

import msgspec
import numpy as np

from parallel_core.training.checkpoints.checkpoint import Checkpoint, names

__all__ = ["STATE", "to_bytes"]

STATE = "training"
"""The name of the array of bytes, uint8, that is the state in JSON."""


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return the file's content."""
    text = msgspec.json.format(msgspec.json.encode(checkpoint.state), indent=1)
    arrays = dict(zip(names(len(checkpoint.parameters)), checkpoint.parameters, strict=True))
    stream = io.BytesIO()
    # savez takes its arrays by name, and no name here is that of another argument.
    np.savez(stream, **{STATE: np.frombuffer(text, np.uint8), **arrays})
    return stream.getvalue()
