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
from typing import Any, TypeVar
from weakref import WeakSet

from backends.arrays import tree_leaves
from backends.torch.streams.future import NO_VALUE, Failure, Future, ItemPath

Extent = tuple[int, int]
"""The addresses of an array, from its first byte to behind its last one; gaps between its elements
count.
"""

Function = TypeVar("Function", bound=Callable[..., Any])

_linking = threading.Lock()


def gives_new_memory(fn: Function) -> Function:
    """Mark a function whose results share no memory with its arguments, and return the function.

    Its results need not be compared with its arguments.
    """
    fn.new_memory = True  # type: ignore[attr-defined]
    return fn


def share_memory(value: Any, others: Any) -> bool:
    """Return whether a value may share memory with other values: they have a storage in common."""
    storages = storages_of(value, set())
    return not storages.isdisjoint(storages_of(others, set()))


def link(future: Future, value: Any, sources: Iterable[Future]) -> None:
    """Join a future, which is about to get `value`, to those of its sources that share its memory.

    Futures that share memory have one common set, `sharing`.
    """
    sharing_sources = [source for source in sources if share_memory(value, source.result())]
    roots = [future, *(source.root for source in sharing_sources)]
    with _linking:
        sets = [root.sharing for root in roots if root.sharing is not None]
        # The other sets are added to the largest one.
        common: WeakSet[Future] = max(sets, key=len, default=WeakSet())
        for root in roots:
            if root.sharing is common:
                continue
            members = [root] if root.sharing is None else [*root.sharing, root]
            for member in members:
                common.add(member)
                member.sharing = common


def wait_for_readers(consumed: Sequence[Future], number: int) -> None:
    """Block until the tasks that read the memory of consumed futures are done.

    Only tasks with a smaller number are waited for, which were submitted before, so program order
    excludes deadlock.
    """

    @cache
    def consumed_memory() -> list[Extent]:
        """Return the extents of the consumed arrays; most calls never ask for them."""
        return _extents([future.result() for future in consumed])

    consumed_paths: dict[Future, list[ItemPath]] = {}
    for future in consumed:
        consumed_paths.setdefault(future.root, []).append(future.path)
    pending = list(consumed_paths)
    # The consumed futures, and then all whose values share memory with them.
    while pending:
        future = pending.pop()
        for reader_number, path, end in future.readers:
            is_earlier = reader_number < number
            if is_earlier and _reads(future, path, consumed_paths[future], consumed_memory):
                with end:
                    pass
        # Only now, because the readers may have made other values share this memory.
        if future.sharing is not None:
            with _linking:
                new_futures = [other for other in future.sharing if other not in consumed_paths]
            for other in new_futures:
                consumed_paths[other] = []
            pending += new_futures


def check_apart(value: Any) -> None:
    """Raise ValueError if arrays of a value, which is to be overwritten, overlap each other."""
    extents = _extents(value)
    if len(extents) < 2:
        return
    # In the order of addresses, extents overlap only if two neighbours do.
    for (_, stop), (next_start, _) in pairwise(sorted(extents)):
        if next_start < stop:
            raise ValueError(
                "arrays that share memory cannot be overwritten together: copy one of them first"
            )


def extent(x: Any) -> Extent:
    """Return the addresses of an array; an array without elements has none, (0, 0)."""
    start, size = x.data_ptr(), x.nbytes
    if size == 0:
        return 0, 0
    if not x.is_contiguous():
        last_element = 0
        for length, stride in zip(x.shape, x.stride(), strict=True):
            last_element += (length - 1) * stride
        size = (last_element + 1) * x.element_size()
    return start, start + size


def overlap(extents: Sequence[Extent], others: Sequence[Extent]) -> bool:
    """Return whether one of the extents has an address in common with one of `others`."""
    for start, stop in extents:
        for other_start, other_stop in others:
            if start < other_stop and other_start < stop:
                return True
    return False


def _extents(value: Any) -> list[Extent]:
    """Return the extents of all arrays in a value."""
    return [extent(x) for x in tree_leaves(value) if hasattr(x, "data_ptr")]


def storages_of(value: Any, found: set[int]) -> set[int]:
    """Add the addresses of the storages of a value's arrays to `found`, and return `found`."""
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
    consumed_paths: Sequence[ItemPath],
    consumed_memory: Callable[[], Sequence[Extent]],
) -> bool:
    """Return whether a reader of an item of `future` may read memory that is to be overwritten."""
    is_computed = future.value is not NO_VALUE
    if any(_may_meet(path, consumed_path, is_computed) for consumed_path in consumed_paths):
        return True
    if consumed_paths and not is_computed:
        # The consumed items were announced, and share no memory with other values.
        return False
    try:
        # If the item is not computed yet, a task that is earlier than its reader will do so.
        item = future.item(path)
        return overlap(_extents(item), consumed_memory())
    except Failure:
        return False


def _may_meet(path: ItemPath, other_path: ItemPath, is_computed: bool) -> bool:
    """Return whether one of two items may be the other, or a part of the other."""
    for index, other_index in zip(path, other_path, strict=False):
        if index != other_index:
            # An index from the end may mean the same item as one from the beginning. If the value
            # is computed, the addresses decide that.
            one_is_from_end = (index < 0) != (other_index < 0)
            return one_is_from_end and not is_computed
    return True
