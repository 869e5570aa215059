"""Why a job of several processes did not hide its exchanges and copies: the reason of the process
that tells it; and its exchanges in the mean of the processes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from backends.profiling.collectives import Collective
from parallel_core.system.formatting import seconds
from parallel_core.traces.cases import BETWEEN_TWO, CaseFigures
from parallel_core.traces.reasons import LITTLE, ExchangeFigures, Unhidden

OTHER_RANK = "other-rank"
MUCH_SHORTER = 0.5
SMALLER_PARTS = "Smaller parts of a batch let both ranks compute at the same time."
WHATEVER_THE_LOAD = frozenset({"computing-stream", "every-micro-batch", "launched-after"})
"""Codes of reasons that are how the program is written: other work cannot bring them about."""


def of_processes(processes: Iterable[CaseFigures], taken: float = 0.0) -> tuple[Unhidden, ...]:
    """Return the kinds of exchange and copy that a job did not hide, and why.

    Of an exchange the process counts in which it is shortest: in all others it also waits for that
    one. Of a send or a receive that one counts in which it is longest, and waits for the other
    process. Of copies the reason of most of the time counts. Other work took a share `taken` of the
    cores' time, and without it as much of a kind may have been hidden: a kind that then needs no
    reason is left out, unless the reason is how the program is written.
    """
    copies: dict[str, list[Unhidden]] = defaultdict(list)
    exchanges: dict[str, dict[float, Unhidden | None]] = defaultdict(dict)
    """By name, and by how long each process's take in the mean; None where they were hidden."""
    for process in processes:
        unhidden_exchanges = {row.name: row for row in process.unhidden if row.kind == "exchange"}
        for operation in process.operations:
            if operation.kind == "exchange":
                name, length = operation.name, operation.mean_seconds
                exchanges[name][length] = unhidden_exchanges.get(name)
        for row in process.unhidden:
            if row.kind != "exchange":
                copies[row.name].append(row)
    rows_of_job = [_of_most_time(rows) for rows in copies.values()]
    for name, row_by_length in exchanges.items():
        if BETWEEN_TWO.search(name) and _differ(name, row_by_length):
            waiting = _waiting_for_another_rank(row_by_length)
            rows_of_job += [] if waiting is None else [waiting]
            continue
        row_of_shortest = row_by_length[min(row_by_length)]
        if row_of_shortest is not None:
            rows_of_job.append(row_of_shortest)
    certain = [row for row in rows_of_job if _needs_reason(row, taken)]
    return tuple(sorted(certain, key=lambda row: -row.unhidden_seconds))


def _differ(name: str, lengths: Collection[float]) -> bool:
    """Return whether sends and receives on several processes are not as long on each.

    An all-to-all of NCCL runs as a kernel of the same name.
    """
    is_kernel = name not in ("send", "recv")
    return len(lengths) > 1 and min(lengths) < (MUCH_SHORTER if is_kernel else 1) * max(lengths)


def _waiting_for_another_rank(row_by_length: Mapping[float, Unhidden | None]) -> Unhidden | None:
    """Return the row of the process whose sends or receives are longest, with its reason.

    The rows are those of one kind on all processes, by how long each takes in the mean.
    """
    longest, shortest = max(row_by_length), min(row_by_length)
    row = row_by_length[longest]
    if row is None:
        return None
    sentence = (
        f"at least {seconds(longest - shortest)} of {seconds(longest)} each is waiting for "
        "another rank"
    )
    return replace(row, code=OTHER_RANK, sentence=sentence, remedy=SMALLER_PARTS)


def _of_most_time(rows: Sequence[Unhidden]) -> Unhidden:
    """Return the longest of those rows whose reason has most of the time."""
    times: dict[str, float] = defaultdict(float)
    for row in rows:
        times[row.code] += row.unhidden_seconds
    code = max(times, key=times.__getitem__)
    with_code = [row for row in rows if row.code == code]
    return max(with_code, key=lambda row: row.unhidden_seconds)


def _needs_reason(row: Unhidden, taken: float) -> bool:
    """Return whether much was not hidden that other work cannot account for."""
    if row.code in WHATEVER_THE_LOAD:
        return True
    lost = taken * row.seconds
    return row.unhidden_seconds - lost >= LITTLE * (row.seconds - lost)


def exchanges_of_job(
    ranks: Iterable[tuple[Sequence[ExchangeFigures], Mapping[Collective, int]]],
) -> tuple[ExchangeFigures, ...]:
    """Return the exchanges of a job by kind, process group and pass, in the mean of the ranks that
    take part, those that take the most time first.

    Of each rank there are its exchanges, and for how many nanoseconds it waited for others in its
    collectives.
    """
    rows_of_alike: dict[tuple[str, str, str | None], list[ExchangeFigures]] = defaultdict(list)
    for rows, waits in ranks:
        for row in rows:
            waited = [waits[collective] for collective in row.collectives if collective in waits]
            waited_seconds = sum(waited) / 1e9 / (row.steps or 1) if waited else None
            with_waits = replace(row, waited_seconds=waited_seconds)
            rows_of_alike[row.kind, row.group, row.launched].append(with_waits)
    rows_of_job = map(_in_the_mean, rows_of_alike.values())
    return tuple(sorted(rows_of_job, key=lambda row: -row.seconds))


def _in_the_mean(rows: Sequence[ExchangeFigures]) -> ExchangeFigures:
    """Return the mean of several ranks' rows, with the reason of the rank that waits least."""
    shortest = min(rows, key=lambda row: row.seconds)
    waits = [row.waited_seconds for row in rows if row.waited_seconds is not None]
    return replace(
        shortest,
        number=fmean(row.number for row in rows),
        seconds=fmean(row.seconds for row in rows),
        hidden_seconds=fmean(row.hidden_seconds for row in rows),
        waited_seconds=fmean(waits) if waits else None,
    )
