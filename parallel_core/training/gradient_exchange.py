"""How devices exchange their gradients: all at once after the backward pass, or in buckets while it goes on.

A backward pass computes the last layer's gradients first. A bucket holds the gradients of some layers, which are
exchanged together (Li and others 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
section 3.2.3). A bucket is one allreduce of several arrays; none of them is copied for it.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from backends import Array, Backend
from parallel_core.measurement.timing import completion_times

__all__ = ["Bucket", "Exchange", "buckets_of", "count_reduced_early", "exchange"]

Exchange = Literal["after", "during"]
Bucket: TypeAlias = "tuple[int, ...]"
"""Positions of parameters whose gradients are exchanged together."""


def buckets_of(exchange: Exchange, parameters: int) -> tuple[Bucket, ...]:
    """Divide parameters into buckets, in the order of their exchange.

    `after`: one bucket. `during`: one for each layer, its weight and its bias, the last layer first.
    """
    if exchange == "after":
        return (tuple(range(parameters)),)
    return tuple((weight, weight + 1) for weight in reversed(range(0, parameters, 2)))


def exchange(backend: Backend, gradients: Sequence[Array], buckets: Sequence[Bucket]) -> list[Array]:
    """Launch the exchange of every device's gradients, which are consumed; return the sums for every device.

    `buckets` hold every position once, the last ones first, as `buckets_of` returns them.
    """
    sums = _sum_buckets(backend, gradients, buckets)
    places = [(bucket, item) for bucket in reversed(range(len(buckets))) for item in range(len(buckets[bucket]))]
    return [tuple(sums[bucket][device][item] for bucket, item in places) for device in range(len(gradients))]


def _sum_buckets(backend: Backend, gradients: Sequence[Array], buckets: Sequence[Bucket]) -> list[tuple[Array, ...]]:
    """Launch an allreduce for each bucket, in their order; return its sum for every device."""
    return [backend.allreduce([tuple(own[place] for place in bucket) for own in gradients]) for bucket in buckets]


def count_reduced_early(backend: Backend, gradients: Sequence[Array], buckets: Sequence[Bucket]) -> int:
    """Exchange gradients that are being computed; count the sums done before any device had its last gradient.

    Blocks until all are done.
    """
    if backend.engine == "sync":
        # A launch returns when the backward pass has ended.
        return 0
    # Queued behind the backward pass; their results are new arrays, since the exchange overwrites the gradients.
    ends = [backend.launch(backend.ops.total, own[0]) for own in gradients]
    sums = _sum_buckets(backend, gradients, buckets)
    done = completion_times(backend, (*ends, *sums))
    first_end = min(done[: len(ends)])
    # The first parameter's gradient is the last one: its bucket cannot be early, whichever thread wakes up first.
    return sum(time < first_end for time, bucket in zip(done[len(ends) :], buckets, strict=True) if 0 not in bucket)
