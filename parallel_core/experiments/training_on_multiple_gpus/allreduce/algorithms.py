"""The textbook's allreduce algorithms, each written once over a backend's verbs.

They add up n vectors of S bytes:

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

from backends import Array, Backend, Ops
from backends.arrays import row_ranges

Allreduce = Callable[[Backend, Sequence[Array]], tuple[Array, ...]]


def star(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Copy all vectors to the first device, add them up there, and copy the sum back into them."""
    total, *others = vectors
    home, *devices = backend.devices[: len(vectors)]
    for vector in others:
        arrived = backend.copy_to(vector, home)
        total = added(backend, total, arrived)
    sums = [total]
    for vector, device in zip(others, devices, strict=True):
        sums.append(backend.copy_to(total, device, out=vector))
    return tuple(sums)


def _ring(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Pass parts of the sum round the ring: every device sends one to the next in each step.

    In the first half of the steps a device adds the part that it receives to its own (a
    reduce-scatter). Then every part is summed on one device, and in the second half the sums take
    the place of the others' parts (an all-gather).
    """
    count = len(vectors)
    parts = [parts_of(backend, vector, count) for vector in vectors]
    for step in range(2 * (count - 1)):
        is_adding = step < count - 1
        # The number of the part that each device receives. At first it is that of the sender, and
        # then the part that the sender received in the step before.
        received = [(device - 1 - step) % count for device in range(count)]
        copies = []
        for device, part in enumerate(received):
            # The device before device 0 is the last one: number -1.
            sender = device - 1
            copies.append(backend.copy_to(parts[sender][part], backend.devices[device]))
        for device, part in enumerate(received):
            if is_adding:
                parts[device][part] = added(backend, parts[device][part], copies[device])
            else:
                parts[device][part] = copies[device]
    return tuple(joined(backend, parts_on_device) for parts_on_device in parts)


def _tree(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Add up in pairs, then in pairs of pairs, up to the first device; copy the sum back down."""
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
    """Let device `roots[k]` gather part k of all vectors, add it up, and send the sum to the rest.

    By default it is device k.
    """
    devices = backend.devices[: len(vectors)]
    if roots is None:
        roots = range(len(devices))
    parts = [parts_of(backend, vector, len(vectors)) for vector in vectors]
    totals = []
    for part, root in enumerate(roots):
        total = parts[root][part]
        for number, parts_on_device in enumerate(parts):
            if number != root:
                arrived = backend.copy_to(parts_on_device[part], devices[root])
                total = added(backend, total, arrived)
        totals.append(total)
    sums = []
    for number, device in enumerate(devices):
        totals_on_device = []
        for total, root in zip(totals, roots, strict=True):
            if root != number:
                total = backend.copy_to(total, device)
            totals_on_device.append(total)
        sums.append(joined(backend, totals_on_device))
    return tuple(sums)


def on_one_root(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Let the first device add up all parts, and else do as `sharded` does."""
    return sharded(backend, vectors, [0] * len(vectors))


def native(backend: Backend, vectors: Sequence[Array]) -> tuple[Array, ...]:
    """Call the backend's own allreduce."""
    return backend.allreduce(vectors)


ALGORITHMS: Mapping[str, Allreduce] = {
    "star": star,
    "ring": _ring,
    "tree": _tree,
    "sharded": sharded,
    "native": native,
}
"""The algorithms by name, from the book's to the backend's."""


def parts_of(backend: Backend, vector: Array, count: int) -> list[Array]:
    """Launch the even division of a vector into `count` parts; the last ones may be empty."""
    parts = backend.launch(partial(_divide, backend.ops, count), vector)
    return [parts[k] for k in range(count)]


def joined(backend: Backend, parts: Sequence[Array]) -> Array:
    """Launch the copying of parts to one vector: the parts may lie in the memory of others."""
    return backend.launch(backend.ops.concatenate, tuple(parts))


def added(backend: Backend, x: Array, y: Array) -> Array:
    """Launch the sum of two vectors, which raises ValueError for other lengths or dtypes."""
    return backend.launch(partial(_add_equal, backend.ops), x, y)


def _divide(ops: Ops, count: int, vector: Array) -> Array:
    """Divide a vector evenly into `count` parts.

    This is launched as a function, because outside of it the vector may be a promise without a
    length.
    """
    lengths = [rows.stop - rows.start for rows in row_ranges(len(vector), count)]
    return ops.split(vector, lengths)


def _add_equal(ops: Ops, x: Array, y: Array) -> Array:
    """Add two vectors; raises ValueError if frameworks would have to convert or repeat one."""
    if x.shape != y.shape or x.dtype != y.dtype:
        raise ValueError(
            f"allreduce needs equal vectors, not {len(x)} × {x.dtype} and {len(y)} × {y.dtype}"
        )
    return ops.add(x, y)
