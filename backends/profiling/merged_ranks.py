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

from backends.profiling.chrome_trace.slices import Slice, Trace

__all__ = ["JOB", "divided"]

JOB = "distributedInfo"
"""The key under which PyTorch's profiler says which rank of how many wrote a trace."""
ON_HOST = {"cpu_op", "cuda_runtime", "cuda_driver", "Operator", "Runtime"}
"""The categories of what a rank's own process does, now and in 2021; a trace that one process wrote has one such."""
LAUNCHES = {"cuda_runtime", "cuda_driver", "Runtime"}
ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
LABEL = re.compile(r"\[((?:[A-Za-z]+\d+)(?:-[A-Za-z]+\d+)*)\]|\brank[ _:-]*(\d+)\b", re.IGNORECASE)
LINK = re.compile(rb'"correlation":\s*"?(\d+)')
MAX_REPEATED = 0.05
"""A process uses no correlation id twice; a larger share of repeated ones is more than damage to a file."""
SURE, UNLIKELY = 0.9, 0.5
"""A row belongs to a process that launched at least this share of it if no other launched the smaller share."""

Process = int | str


def divided(trace: Trace) -> tuple[Trace, ...]:
    """Return the traces of the ranks in a file, in order; most files hold one, which is returned as it is.

    Raises ValueError, in one line, if the file holds several ranks that cannot be told apart.
    """
    used = {one.process for one in trace.slices}
    labels = {process: label for process in used if (label := _label(process, trace.processes.get(process, "")))}
    if len(set(labels.values())) > 1:
        numbers = _numbers(set(labels.values()))
        return _parts(trace, {process: numbers[label] for process, label in labels.items()})
    hosts = {one.process for one in trace.slices if one.category in ON_HOST}
    launched, repeated = _launches(trace.slices)
    if len(hosts) < 2:
        again = repeated > MAX_REPEATED * sum(map(len, launched.values()))
        if again or JOB in trace.contradicted or hosts & trace.named_twice:
            raise ValueError("several ranks with the same process ids were merged into it: give each rank's own file")
        return (trace,)
    host_of = _hosts_of_rows(trace.slices, hosts, launched)
    in_order = sorted(hosts, key=lambda host: (isinstance(host, str), host))
    note = f"{len(hosts)} ranks were merged into the file, which does not say which is which: they are numbered here."
    return _parts(trace, {row: in_order.index(host) for row, host in host_of.items()}, note)


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


def _launches(slices: Iterable[Slice]) -> tuple[dict[Process, dict[bytes, int]], int]:
    """Return when each process launched what, by correlation id, and how many ids a process used again."""
    launched: dict[Process, dict[bytes, int]] = {}
    repeated = 0
    for one in slices:
        if one.category in LAUNCHES and (link := LINK.search(one.raw_args)):
            own = launched.setdefault(one.process, {})
            repeated += link[1] in own
            own[link[1]] = one.start
    return launched, repeated


def _hosts_of_rows(
    slices: Iterable[Slice], hosts: set[Process], launched: Mapping[Process, Mapping[bytes, int]]
) -> dict[Process, Process]:
    """Return the process that each process row belongs to, itself for the hosts; by the links of what devices did."""
    rows: dict[Process, list[Slice]] = {}
    for one in slices:
        if one.category in ON_DEVICE and one.process not in hosts:
            rows.setdefault(one.process, []).append(one)
    return {host: host for host in hosts} | {row: _host_of(row, work, launched) for row, work in rows.items()}


def _host_of(row: Process, work: Sequence[Slice], launched: Mapping[Process, Mapping[bytes, int]]) -> Process:
    matches: Counter[Process] = Counter()
    for one in work:
        link = LINK.search(one.raw_args)
        matches.update(host for host, own in launched.items() if link and own.get(link[1], inf) <= one.start)
    (host, best), (_, second) = [*matches.most_common(2), (row, 0), (row, 0)][:2]
    if best < SURE * len(work) or second > UNLIKELY * len(work):
        raise ValueError(
            f"several ranks were merged into it, and process {row!r} may belong to more than one: give each rank's "
            "own file"
        )
    return host


def _parts(trace: Trace, rank_of: Mapping[Process, int], *notes: str) -> tuple[Trace, ...]:
    left = {one.process for one in trace.slices if one.category in ON_DEVICE | ON_HOST} - rank_of.keys()
    if left:
        raise ValueError(f"several ranks were merged into it, but process {min(map(str, left))} belongs to none")
    slices: dict[int, list[Slice]] = {rank: [] for rank in sorted(set(rank_of.values()))}
    for one in trace.slices:
        if one.process in rank_of:
            slices[rank_of[one.process]].append(one)
    job = trace.properties.get(JOB)
    return tuple(
        replace(
            trace,
            slices=tuple(own),
            properties={**trace.properties, JOB: {**(job if isinstance(job, Mapping) else {}), "rank": rank}},
            problems=(*trace.problems, *notes),
        )
        for rank, own in slices.items()
    )
