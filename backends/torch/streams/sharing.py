"""Values that share memory, and the tasks that still read it.

A task may return its argument, or views of it: further names of the same memory. It is noticed when
the task has been computed, and the futures of these values then know of each other. A task that is
to overwrite a value waits, when its turn comes, for the earlier tasks that read the value's memory,
by whatever name: what gave the memory another name was one of them.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

from backends.arrays import tree_leaves
from backends.torch.streams.future import NO_VALUE, Failure, Future, ItemPath

Extent: TypeAlias = tuple[int, int]
"""The addresses of an array, from its first byte to behind its last one; gaps between its elements
count.
"""

Function = TypeVar("Function", bound=Callable[..., Any])

_linking = threading.Lock()


def gives_new_memory(fn: Function) -> Function:
    """Mark a function whose results share no memory with its arguments: the two need not be
    compared.
    """
    fn.new_memory = True  # type: ignore[attr-defined]
    return fn


def share_memory(value: Any, others: Any) -> bool:
    """Return whether a value may share memory with other values: whether they have a storage in
    common.
    """
    return not storages_of(value, set()).isdisjoint(storages_of(others, set()))


def link(future: Future, value: Any, sources: Iterable[Future]) -> None:
    """Let a future that is about to get a value know those of its sources that share its memory,
    and they it.
    """
    roots = [future, *(source.root for source in sources if share_memory(value, source.result()))]
    with _linking:
        known = [root.sharing for root in roots if root.sharing is not None]
        largest: WeakSet[Future] = max(known, key=len, default=WeakSet())
        for root in roots:
            if root.sharing is not largest:
                for member in (*(root.sharing or ()), root):
                    largest.add(member)
                    member.sharing = largest


def wait_for_readers(consumed: Sequence[Future], number: int) -> None:
    """Block until all tasks before a number that read the memory of computed futures are done.

    A task that waits here waits for earlier ones only, so program order excludes deadlock.
    """

    @cache
    def memory() -> list[Extent]:
        return _extents([future.result() for future in consumed])

    paths: dict[Future, list[ItemPath]] = {}
    for future in consumed:
        paths.setdefault(future.root, []).append(future.path)
    waiting = list(paths)
    while waiting:
        future = waiting.pop()
        for reader, path, end in future.readers:
            if reader < number and _reads(future, path, paths[future], memory):
                with end:
                    pass
        # Only now: what has been waited for may have made other values share this memory.
        if future.sharing is not None:
            with _linking:
                found = [other for other in future.sharing if other not in paths]
            paths.update((other, []) for other in found)
            waiting += found


def check_apart(value: Any) -> None:
    """Raise ValueError if arrays of a value, which is to be overwritten, share memory with each
    other.
    """
    extents = _extents(value)
    if len(extents) > 1 and any(
        stop > start for (_, stop), (start, _) in pairwise(sorted(extents))
    ):
        raise ValueError(
            "arrays that share memory cannot be overwritten together: copy one of them first"
        )


def extent(x: Any) -> Extent:
    """Return the addresses of an array; no two without elements overlap."""
    start, size = x.data_ptr(), x.nbytes
    if size and not x.is_contiguous():
        last = sum(
            (length - 1) * stride for length, stride in zip(x.shape, x.stride(), strict=True)
        )
        size = (last + 1) * x.element_size()
    return (start, start + size) if size else (0, 0)


def overlap(some: Sequence[Extent], others: Sequence[Extent]) -> bool:
    """Return whether one of some extents has an address in common with one of `others`."""
    return any(start < stop and begin < end for start, end in some for begin, stop in others)


def _extents(value: Any) -> list[Extent]:
    return [extent(x) for x in tree_leaves(value) if hasattr(x, "data_ptr")]


def storages_of(value: Any, found: set[int]) -> set[int]:
    """Return the addresses of the memory in which the arrays of a value lie, with those that were
    found before.
    """
    storage = getattr(value, "untyped_storage", None)
    if storage is not None:
        found.add(storage().data_ptr())
    elif isinstance(value, tuple | list):
        for item in value:
            storages_of(item, found)
    return found


def _reads(
    future: Future,
    path: ItemPath,
    consumed: Sequence[ItemPath],
    memory: Callable[[], Sequence[Extent]],
) -> bool:
    computed = future.value is not NO_VALUE
    if any(_may_meet(path, own, computed) for own in consumed):
        return True
    if consumed and not computed:
        # The consumed items were announced, and share no memory with other values.
        return False
    try:
        # It may not be computed yet, but will be by a task that is earlier than its reader.
        return overlap(_extents(future.item(path)), memory())
    except Failure:
        return False


def _may_meet(path: ItemPath, other: ItemPath, computed: bool) -> bool:
    for mine, theirs in zip(path, other, strict=False):
        if mine != theirs:
            # Counted from the end it may be the same item; of a computed value, the addresses say
            # so.
            return not computed and (mine < 0) != (theirs < 0)
    return True
