"""Files into which a tool merged the traces of several ranks: recognised, and divided into the ranks again.

Process ids and correlation ids are unique within a rank only. Tools that merge put the rank into the processes' names
(`RANK 3 - GPU`) or ids (`[TP03] 4711`), or add multiples of a large number to the ids; some change nothing. Without a
name, a rank is a process that launched operations, and a row of a device belongs to the process that launched what it
holds. If several processes could have, the file cannot be divided.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from backends.profiling.chrome_trace.slices import Slices, Trace

__all__ = ["JOB", "divided"]

JOB = "distributedInfo"
"""The key under which PyTorch's profiler says which rank of how many wrote a trace."""
ON_HOST = {"cpu_op", "cuda_runtime", "cuda_driver", "xpu_runtime", "Operator", "Runtime"}
"""The categories of what a rank's own process does, now and in 2021; a trace that one process wrote has one such."""
LAUNCHES = ON_HOST - {"cpu_op", "Operator"}
ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events", "hpu_op", "Kernel", "Memcpy", "Memset"}
LABEL = re.compile(r"\[((?:[A-Za-z]+\d+)(?:-[A-Za-z]+\d+)*)\]|\brank[ _:-]*(\d+)\b", re.IGNORECASE)
MAX_REPEATED = 0.05
"""A process uses no correlation id twice; a larger share of repeated ones is more than damage to a file."""
SURE, UNLIKELY = 0.9, 0.5
"""A row belongs to a process that launched at least this share of it if no other launched the smaller share."""

Process = int | str


def divided(trace: Trace) -> tuple[Trace, ...]:
    """Return the traces of the ranks in a file, in order; most files hold one, which is returned as it is.

    Raises ValueError, in one line, if the file holds several ranks that cannot be told apart.
    """
    slices = trace.columns
    labels = {
        process: label
        for process in _processes(slices, np.ones(len(slices), bool))
        if (label := _label(process, trace.processes.get(process, "")))
    }
    if len(set(labels.values())) > 1:
        numbers = _numbers(set(labels.values()))
        return _parts(trace, {process: numbers[label] for process, label in labels.items()})
    hosts = _processes(slices, slices.has_category(*ON_HOST))
    if len(hosts) > 1:
        host_of = _hosts_of_rows(slices, hosts)
        in_order = sorted(hosts, key=lambda host: (isinstance(host, str), host))
        note = (
            f"{len(hosts)} ranks were merged into the file, which does not say which is which: they are numbered here."
        )
        return _parts(trace, {row: in_order.index(host) for row, host in host_of.items()}, note)
    unnamed = hosts - trace.processes.keys()
    if JOB in trace.contradicted or hosts & trace.named_twice or (unnamed and _uses_ids_again(slices)):
        raise ValueError("several ranks with the same process ids were merged into it: give each rank's own file")
    return (trace,)


def _processes(slices: Slices, where: np.ndarray) -> set[Process]:
    return {slices.rows[row][0] for row in np.unique(slices.row_of[where]).tolist()}


def _label(process: Process, name: str) -> str:
    """Return what a tool wrote to tell ranks apart, in the id or the name of a process; "" if there is nothing."""
    match = LABEL.search(str(process)) or LABEL.search(name)
    return (match[1] or match[2].lstrip("0") or "0") if match else ""


def _numbers(labels: Iterable[str]) -> dict[str, int]:
    """Give each label its rank: the one number that differs between the labels, or its place among them."""
    parts = {label: tuple(map(int, re.findall(r"\d+", label))) for label in labels}
    in_order = sorted(parts, key=lambda label: (parts[label], label))
    if len({len(numbers) for numbers in parts.values()}) == 1:
        differing = [column for column in zip(*parts.values(), strict=True) if len(set(column)) > 1]
        if len(differing) == 1 and len(set(differing[0])) == len(parts):
            return dict(zip(parts, differing[0], strict=True))
    return {label: place for place, label in enumerate(in_order)}


def _links(slices: Slices) -> list[Any]:
    return [link for (link,) in slices.arguments("correlation")]


def _uses_ids_again(slices: Slices) -> bool:
    """Return whether launches share correlation ids, which are unique in a process."""
    links = _links(slices.select(slices.has_category(*LAUNCHES)))
    return len(set(links)) < (1 - MAX_REPEATED) * len(links)


def _hosts_of_rows(slices: Slices, hosts: set[Process]) -> dict[Process, Process]:
    """Return the process that each process row belongs to, itself for the hosts; by the links of what devices did."""
    launches = slices.select(slices.has_category(*LAUNCHES))
    launched: dict[Process, dict[Any, int]] = {host: {} for host in hosts}
    for one, link in zip(launches, _links(launches), strict=True):
        if link is not None:
            launched[one.process][link] = one.start
    on_device = slices.select(slices.has_category(*ON_DEVICE))
    rows: dict[Process, list[tuple[Any, int]]] = {}
    for one, link in zip(on_device, _links(on_device), strict=True):
        rows.setdefault(one.process, []).append((link, one.start))
    found = {row: _host_of(row, work, launched) for row, work in rows.items() if row not in hosts}
    return {host: host for host in hosts} | found


def _host_of(row: Process, work: Sequence[tuple[Any, int]], launched: Mapping[Process, Mapping[Any, int]]) -> Process:
    matches: Counter[Process] = Counter()
    for link, start in work:
        matches.update(host for host, own in launched.items() if own.get(link, inf) <= start)
    (host, best), (_, second) = [*matches.most_common(2), (row, 0), (row, 0)][:2]
    if best < SURE * len(work) or second > UNLIKELY * len(work):
        raise ValueError(
            f"several ranks were merged into it, and process {row!r} may belong to more than one: give each rank's "
            "own file"
        )
    return host


def _parts(trace: Trace, rank_of: Mapping[Process, int], *notes: str) -> tuple[Trace, ...]:
    slices = trace.columns
    left = _processes(slices, slices.has_category(*ON_DEVICE, *ON_HOST)) - rank_of.keys()
    if left:
        raise ValueError(
            f"several ranks were merged into it, and process {min(map(str, left))} belongs to none: give each rank's "
            "own file"
        )
    rank_of_row = np.array([rank_of.get(process, -1) for process, _ in slices.rows])
    job = trace.properties.get(JOB)
    return tuple(
        replace(
            trace,
            slices=slices.select(rank_of_row[slices.row_of] == rank),
            properties={**trace.properties, JOB: {**(job if isinstance(job, Mapping) else {}), "rank": rank}},
            problems=(*trace.problems, *notes),
        )
        for rank in sorted(set(rank_of.values()))
    )
