"""The textbook's allreduce algorithms, each written once over a backend's verbs, for n vectors of S
bytes.

- star: everything to the first device and back. 2 steps; the first device takes in (n − 1)·S and
  sends as much.
- ring: parts of the sum travel round a ring. 2(n − 1) steps; every device takes in and sends 2(n −
  1)/n·S.
- tree: pairs of devices, then pairs of pairs. 2·⌈log₂ n⌉ steps; the first device takes in ⌈log₂
  n⌉·S and sends as much.
- sharded: device k adds up part k of all vectors. 2 steps; every device takes in and sends 2(n −
  1)/n·S.
- native: the backend's own `allreduce`, which may make use of memory that its devices share.

Without shared memory 2(n − 1)/n·S is the least that every device must take in and send. With it,
all vectors must still be read once and written once.

Sources: the star is the function in the book's chapter. Patarasuk and Yuan 2009 (Bandwidth Optimal
All-reduce Algorithms for Clusters of Workstations) for the ring and the least; Thakur, Rabenseifner
and Gropp 2005 (Optimization of Collective Communication Operations in MPICH) for trees and for sums
that are scattered and then gathered.

Every algorithm takes one vector per device, the i-th on the backend's i-th device, all of one
length and dtype. It returns the sum on every device, in the order given, on memory of its own; the
vectors are consumed. What it launches reads slices of vectors and never writes to one: an engine
may not be able to tell slices of one array apart.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from backends import Array, Backend, Ops
from backends.arrays import row_ranges

Allreduce: TypeAlias = Callable[[Backend, Sequence[Array]], tuple[Array, ...]]


def star(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Copy all vectors to the first device, add them up there, and copy the sum back into them."""
    total, *others = vectors
    home, *devices = backend.devices[: len(vectors)]
    for vector in others:
        total = added(backend, total, backend.copy_to(vector, home))
    returned = (
        backend.copy_to(total, device, out=x) for x, device in zip(others, devices, strict=True)
    )
    return (total, *returned)


def _ring(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Pass parts on to the next device: adding to them (reduce-scatter), then as they are
    (all-gather).
    """
    count = len(vectors)
    parts = [parts_of(backend, vector, count) for vector in vectors]
    for step in range(2 * (count - 1)):
        # Each device passes on the part that reached it in the step before. The one before device 0
        # is number -1.
        moved = [(device, (device - 1 - step) % count) for device in range(count)]
        copies = [
            backend.copy_to(parts[device - 1][part], backend.devices[device])
            for device, part in moved
        ]
        for (device, part), arrived in zip(moved, copies, strict=True):
            adds = step < count - 1
            parts[device][part] = added(backend, parts[device][part], arrived) if adds else arrived
    return tuple(joined(backend, mine) for mine in parts)


def _tree(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Add up in pairs, then in pairs of pairs, to the first device; copy the sum down the same
    tree.
    """
    sums = list(vectors)
    count = len(sums)
    distance = 1
    while distance < count:
        for device in range(0, count - distance, 2 * distance):
            arrived = backend.copy_to(sums[device + distance], backend.devices[device])
            sums[device] = added(backend, sums[device], arrived)
        distance *= 2
    while distance > 1:
        distance //= 2
        for device in range(0, count - distance, 2 * distance):
            below = device + distance
            sums[below] = backend.copy_to(sums[device], backend.devices[below], out=sums[below])
    return tuple(sums)


def sharded(
    backend: Backend, vectors: Sequence[Array], roots: Sequence[int] | None = None
) -> tuple[Array, ...]:
    """Let device k, or the device number `roots[k]`, gather part k of all vectors, add it up, and
    send it back.
    """
    devices = backend.devices[: len(vectors)]
    places = range(len(devices)) if roots is None else roots
    parts = [parts_of(backend, vector, len(vectors)) for vector in vectors]
    totals = []
    for k, root in enumerate(places):
        total, *others = [mine[k] for mine in (parts[root], *parts[:root], *parts[root + 1 :])]
        for part in others:
            total = added(backend, total, backend.copy_to(part, devices[root]))
        totals.append((total, devices[root]))
    return tuple(
        joined(
            backend,
            [total if root == own else backend.copy_to(total, own) for total, root in totals],
        )
        for own in devices
    )


def on_one_root(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Do the same with the parts, but let the first device add up all of them."""
    return sharded(backend, vectors, [0] * len(vectors))


def native(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Leave it to the backend."""
    return backend.allreduce(vectors)


ALGORITHMS: Mapping[str, Allreduce] = {
    "star": star,
    "ring": _ring,
    "tree": _tree,
    "sharded": sharded,
    "native": native,
}
"""By name, from the book's own to the backend's."""


def parts_of(backend: Backend, vector: Array, count: int) -> list[Array]:
    """Launch the even division of a vector into parts, of which the last ones may be empty."""
    parts = backend.launch(partial(_divide, backend.ops, count), vector)
    return [parts[k] for k in range(count)]


def joined(backend: Backend, parts: Sequence[Array]) -> Array:
    """Launch the joining of parts, which may lie in the vectors' memory, to a vector on memory of
    its own.
    """
    return backend.launch(backend.ops.concatenate, tuple(parts))


def added(backend: Backend, x: Array, y: Array) -> Array:
    """Launch the sum of two vectors of one length and dtype; others, which it might convert, are a
    ValueError there.
    """
    return backend.launch(partial(_add_equal, backend.ops), x, y)


def _divide(ops: Ops, count: int, vector: Array) -> Array:
    # Its length is known only here, for outside it may be a promise.
    return ops.split(vector, [rows.stop - rows.start for rows in row_ranges(len(vector), count)])


def _add_equal(ops: Ops, x: Array, y: Array) -> Array:
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError(
            f"allreduce needs equal vectors, not {len(x)} × {x.dtype} and {len(y)} × {y.dtype}"
        )
    return ops.add(x, y)
