"""The watch decides from what processes do and when, all of which is synthetic here."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.jobs.reports import Arrived, Failed, Progress, Report
from parallel_core.jobs.watch import LATE_NEWS_SECONDS, Conclusion, Watch

TIMEOUT = 10.0
FINISHED = Conclusion("", status=0)
CLOSED = Failed("closed by peer", by_others=True, status=1)
SERVERS = ("scheduler", "server 0")
News = tuple[int | str, Report | int | bytes]
"""A process, the number of a rank for short, and its report, its exit status, or what it wrote to standard error."""


def tell(watch: Watch, news: News, now: float) -> None:
    who, what = news
    name = f"rank {who}" if isinstance(who, int) else who
    if isinstance(what, bytes):
        watch.print(name, what)
    elif isinstance(what, int):
        watch.end(name, what, now)
    else:
        watch.report(name, what, now)


def watch_over(ranks: int, *beside: str) -> Watch:
    return Watch([*beside, *(f"rank {rank}" for rank in range(ranks))], "a", TIMEOUT, 0.0)


def joined(ranks: int, *beside: str, exchanges: int = 1) -> Watch:
    watch = watch_over(ranks, *beside)
    for rank in range(ranks):
        tell(watch, (rank, Progress(exchanges, 1, exchanges)), 0.0)
    return watch


def concluded(watch: Watch, *news: News, now: float = 1.0) -> Conclusion:
    """Tell the news, and return what is concluded when no more can come."""
    for one in news:
        tell(watch, one, now)
    conclusion = watch.decide(now + LATE_NEWS_SECONDS)
    assert conclusion is not None
    return conclusion


@given(st.permutations(range(4)), st.integers(0, 3))
def test_a_job_is_finished_when_all_ranks_have_ended_well_and_not_before(order: list[int], servers: int) -> None:
    watch = joined(4, *(f"server {number}" for number in range(servers)))
    for rank in order:
        assert watch.decide(1.0) is None
        tell(watch, (rank, 0), 1.0)
    assert watch.decide(1.0) == FINISHED


# What may happen to a rank that is not to blame, when another one was killed or refuses.
CONSEQUENCES = st.sampled_from([(CLOSED, 1), (CLOSED,), (CLOSED, -6), (-6,), (1,), ()])


@given(st.integers(2, 5), st.booleans(), st.data())
def test_the_cause_is_found_in_whichever_order_the_news_arrive(size: int, refuses: bool, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, size - 1))
    refusal = Failed("there is a checkpoint", by_others=False, status=2)
    queues: list[list[News]] = [[(culprit, refusal), (culprit, 2)] if refuses else [(culprit, -9)]]
    queues += [[(rank, what) for what in data.draw(CONSEQUENCES)] for rank in {*range(size)} - {culprit}]
    news = []
    while any(queues):
        news.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    conclusion = concluded(joined(size), *news)
    if refuses:
        assert conclusion == Conclusion("there is a checkpoint", status=2, culprits=(f"rank {culprit}",))
    else:
        assert conclusion.message.startswith(
            f"rank {culprit} on a was killed by SIGKILL after epoch 1, step 1: the sys"
        )
        assert (conclusion.status, conclusion.culprits, conclusion.hang) == (1, (f"rank {culprit}",), False)


@given(st.lists(st.floats(0, TIMEOUT * 0.99), min_size=1, max_size=20), st.data())
def test_a_job_lasts_while_anybody_makes_progress_and_no_longer(pauses: list[float], data: st.DataObject) -> None:
    watch = joined(3)
    now = 0.0
    counts = dict.fromkeys(range(3), 1)
    for pause in pauses:
        now += pause
        assert watch.decide(now) is None
        rank = data.draw(st.integers(0, 2))
        counts[rank] += 1
        tell(watch, (rank, Progress(counts[rank], 1, counts[rank])), now)
    assert watch.next_look() == now + TIMEOUT
    # To print is no progress.
    tell(watch, (0, b"still here\n"), now + TIMEOUT / 2)
    conclusion = watch.decide(now + TIMEOUT)
    assert conclusion is not None
    assert conclusion.hang
    fewest = min(counts.values())
    assert conclusion.culprits == tuple(f"rank {rank}" for rank, count in counts.items() if count == fewest)
    if len(set(counts.values())) == 1:
        assert f"all stopped after {fewest} exchange" in conclusion.message
    else:
        assert f"{fewest} exchange" in conclusion.message
        assert f"others have launched {max(counts.values())}" in conclusion.message


@given(st.data())
def test_looking_again_is_never_put_off_beyond_the_next_decision(data: st.DataObject) -> None:
    watch = joined(3, "scheduler")
    now = 0.0
    news: list[News] = [(0, 0), (1, 1), ("scheduler", 0), (2, Progress(2)), (2, CLOSED), (0, b"words")]
    for one in data.draw(st.permutations(news))[: data.draw(st.integers(0, 6))]:
        now += data.draw(st.floats(0, 0.1))
        tell(watch, one, now)
    if watch.decide(now) is None:
        look = watch.next_look()
        assert look > now
        assert watch.decide(look - 1e-6) is None
        assert watch.decide(look) is not None


@pytest.mark.parametrize(
    ("arrived", "joined_ranks", "message"),
    [
        ((), (1,), "rank 0 on a, rank 2 on a have not joined within 12 s"),
        # Who has arrived waits for one that has not.
        ((0, 2), (), "rank 1 on a has not joined within 12 s"),
        ((0, 1, 2), (), "rank 0 on a, rank 1 on a, rank 2 on a have not joined within 10 s"),
    ],
)
def test_ranks_that_have_not_joined_are_named_and_not_those_that_wait(
    arrived: Sequence[int], joined_ranks: Sequence[int], message: str
) -> None:
    watch = watch_over(3)
    for rank in arrived:
        tell(watch, (rank, Arrived()), 2.0)
    for rank in joined_ranks:
        tell(watch, (rank, Progress()), 2.0)
    assert watch.decide(TIMEOUT + 1) is None
    conclusion = watch.decide(TIMEOUT + 2)
    assert conclusion is not None
    assert (conclusion.message, conclusion.hang) == (message, True)


def test_a_rank_that_waits_for_one_that_hangs_is_not_to_blame() -> None:
    assert concluded(watch_over(2), (0, CLOSED), now=9.0).message == "rank 1 on a has not joined within 10 s"
    watch = joined(3)
    for rank in (0, 2):
        tell(watch, (rank, Progress(2, 1, 2)), 1.0)
    conclusion = concluded(watch, (0, CLOSED), (0, 1), now=9.0)
    assert conclusion.hang
    assert conclusion.message.startswith("rank 1 on a has made no progress for 10 s after epoch 1, step 1")


@given(st.permutations([0, 1, 2]), st.integers(0, 2), st.sampled_from([1, -6]))
def test_its_own_failure_comes_before_what_others_notice(order: list[int], culprit: int, status: int) -> None:
    watch = joined(3)
    for rank in order:
        if rank == culprit:
            # The first reason that it gives is its reason.
            for reason in ("NaN", "cannot tidy up"):
                tell(watch, (rank, Failed(reason, by_others=False, status=1)), 1.0)
        elif status == 1:
            tell(watch, (rank, CLOSED), 1.0)
        tell(watch, (rank, 1 if rank == culprit else status), 1.0)
    # All are gone, so there is nothing to wait for.
    assert watch.decide(1.0) == Conclusion(f"rank {culprit} on a: NaN", culprits=(f"rank {culprit}",))


@pytest.mark.parametrize("by_others", [True, False])
def test_a_reason_that_all_ranks_give_is_said_once(by_others: bool) -> None:
    news = [(rank, Failed("shapes differ", by_others, status=1)) for rank in (1, 0)]
    assert concluded(joined(2), *news).message == "rank 0 on a, rank 1 on a: shapes differ"


@pytest.mark.parametrize("report", [(), ((1, Failed("no such file", by_others=False, status=2)),)])
def test_a_refusal_by_all_that_failed_is_a_bad_request(report: Sequence[News]) -> None:
    said = b"warning\nparallel-core: no such file\n"
    conclusion = concluded(watch_over(2), (1, said), *report, (1, 2))
    assert conclusion == Conclusion("no such file", status=2, culprits=("rank 1",))


@pytest.mark.parametrize(
    ("news", "message"),
    [
        (
            [
                (1, Failed("no such file", by_others=False, status=2)),
                (0, Failed("full disk", by_others=False, status=1)),
            ],
            "rank 0 on a: full disk",
        ),
        ([(0, CLOSED), ("server 0", -15)], "server 0 on a was killed by SIGTERM while the ranks were at work and with"),
        ([(0, 1), ("server 0", 1)], "server 0 on a ended with status 1 while the ranks were at work and without"),
        ([("server 0", 1), (1, -9)], "rank 1 on a was killed by SIGKILL after epoch 1, step 1"),
        ([(1, 0), (0, Progress(2, 1, 2)), (0, CLOSED)], "rank 1 on a ended after epoch 1, step 1, before the others"),
        # An exchange does not take back which batch was the last.
        ([(1, Progress(6)), (1, -15)], "rank 1 on a was killed by SIGTERM after epoch 1, step 1 and without a word"),
        ([(1, -6), (0, 1)], "rank 1 on a was killed by SIGABRT after epoch 1, step 1 and without a word"),
    ],
)
def test_one_process_is_named(news: Sequence[News], message: str) -> None:
    watch = joined(2, *SERVERS)
    for number, one in enumerate(news):
        tell(watch, one, number / 100)
    assert concluded(watch).message.startswith(message)


def test_a_rank_that_ends_well_without_having_joined_leaves_the_others_alone() -> None:
    conclusion = concluded(watch_over(2), (1, 0), (0, Progress()), (0, CLOSED))
    assert conclusion.message == "rank 1 on a ended before it had joined, before the others"


def test_a_server_that_ends_well_is_the_cause_only_if_the_ranks_then_get_stuck() -> None:
    watch = joined(2, "server 0")
    tell(watch, ("server 0", 0), 1.0)
    assert watch.decide(1.0 + LATE_NEWS_SECONDS) is None
    conclusion = watch.decide(1.0 + TIMEOUT)
    assert conclusion is not None
    assert conclusion.message == "server 0 on a ended while the ranks were at work, before the others"
    for rank in (0, 1):
        tell(watch, (rank, 0), 2.0)
    assert watch.decide(2.0) == FINISHED


def test_a_rank_that_has_done_its_part_is_not_to_blame_for_what_comes_later() -> None:
    watch = joined(2)
    tell(watch, (1, 0), 1.0)
    # To end well is progress.
    assert watch.decide(0.5 + TIMEOUT) is None
    conclusion = watch.decide(1.0 + TIMEOUT)
    assert conclusion is not None
    assert conclusion.message.startswith("rank 0 on a has made no progress for 11 s")
    assert conclusion.message.endswith("; rank 1 on a had ended by then")


def test_a_rank_that_counts_anew_has_not_gone_back() -> None:
    watch = joined(2, exchanges=5)
    for number in (6, 1):
        tell(watch, (0, Progress(number)), 1.0)
    conclusion = watch.decide(1.0 + TIMEOUT)
    assert conclusion is not None
    assert conclusion.culprits == ("rank 1",)
    assert conclusion.message.endswith("5 exchanges launched, while others have launched 6")


def test_words_are_kept_to_their_end() -> None:
    watch = joined(1)
    for number in range(10_000):
        tell(watch, (0, b"%d\n" % number), 1.0)
    kept = watch.processes["rank 0"].errors
    assert len(kept) < 20_000
    assert kept.endswith(b"9998\n9999\n")


def test_a_deadline_does_not_cut_short_the_search_for_a_cause() -> None:
    watch = joined(4)
    tell(watch, (1, CLOSED), TIMEOUT - 0.5)
    assert watch.decide(TIMEOUT) is None
    assert concluded(watch, (2, -9), now=TIMEOUT).culprits == ("rank 2",)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_the_last_line_is_quoted_however_it_was_cut(pieces: list[bytes]) -> None:
    news: list[News] = [(1, piece) for piece in itertools.chain(pieces, [b"\nthe last ", b"word\n\n"])]
    message = concluded(joined(2), *news, (1, -6)).message
    assert message == "rank 1 on a was killed by SIGABRT after epoch 1, step 1; it said last: the last word"


@given(st.sets(st.integers(0, 3)), st.integers(0, 3))
def test_of_ranks_asked_for_their_stacks_those_that_give_none_are_named(answered: set[int], absent: int) -> None:
    watch = watch_over(4)
    for rank in range(4):
        tell(watch, (rank, Arrived() if rank == absent else Progress(1)), 0.0)
    conclusion = watch.decide(TIMEOUT)
    assert conclusion is not None
    after = watch.after_stacks(conclusion, {f"rank {rank}" for rank in answered}, TIMEOUT)
    silent = [rank for rank in range(4) if rank not in answered]
    # One that has not joined may not have begun to run.
    if set(silent) <= {absent}:
        assert after == conclusion
    else:
        assert after.culprits == tuple(f"rank {rank}" for rank in silent)
        assert "not answered for 10 s" in after.message
