"""The watch decides from what processes do and when, all of which is synthetic here."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.jobs.job import Arrived, Ended, Failed, News, Printed, Progress
from parallel_core.jobs.watch import LATE_NEWS_SECONDS, Conclusion, Watch

TIMEOUT = 10.0
FINISHED = Conclusion("", status=0)
CLOSED = Failed("closed by peer", by_others=True, status=1)
NO_FILE = Failed("no such file", by_others=False, status=2)
KILLED, WELL = Ended(-9), Ended(0)
SERVERS = ("scheduler", "server 0")
ON = Progress(2, 1, 2)
Told = tuple[int | str, News]
"""A process, the number of a rank for short, and its news."""


def watch_over(ranks: int, *beside: str) -> Watch:
    return Watch([*beside, *(f"rank {rank}" for rank in range(ranks))], TIMEOUT, 0.0)


def joined(ranks: int, *beside: str, exchanges: int = 1) -> Watch:
    watch = watch_over(ranks, *beside)
    tell(watch, *((rank, Progress(exchanges, 1, exchanges)) for rank in range(ranks)))
    return watch


def tell(watch: Watch, *told: Told, now: float = 0.0) -> None:
    for who, news in told:
        watch.take(f"rank {who}" if isinstance(who, int) else who, news, now)


def decided(watch: Watch, now: float) -> Conclusion:
    conclusion = watch.decide(now)
    assert conclusion is not None
    return conclusion


def concluded(watch: Watch, *told: Told, now: float = 1.0) -> Conclusion:
    """Tell the news, and return what is concluded when no more can come."""
    tell(watch, *told, now=now)
    return decided(watch, now + LATE_NEWS_SECONDS)


@given(st.permutations(range(4)), st.integers(0, 3))
def test_a_job_is_finished_when_all_ranks_have_ended_well_and_not_before(order: list[int], servers: int) -> None:
    watch = joined(4, *(f"server {number}" for number in range(servers)))
    tell(watch, *((f"server {number}", WELL) for number in range(servers - 1)), now=1.0)
    for rank in order:
        assert watch.decide(1.0) is None
        tell(watch, (rank, WELL), now=1.0)
    assert watch.decide(1.0) == FINISHED


# What may happen to a rank that is not to blame, when another one was killed or refuses.
CONSEQUENCES = st.sampled_from([(CLOSED, Ended(1)), (CLOSED,), (CLOSED, Ended(-6)), (Ended(-6),), (Ended(1),), ()])


@given(st.integers(2, 5), st.booleans(), st.data())
def test_the_cause_is_found_in_whichever_order_the_news_arrive(size: int, refuses: bool, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, size - 1))
    queues: list[list[Told]] = [[(culprit, NO_FILE), (culprit, Ended(2))] if refuses else [(culprit, KILLED)]]
    queues += [[(rank, what) for what in data.draw(CONSEQUENCES)] for rank in {*range(size)} - {culprit}]
    told = []
    while any(queues):
        told.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    conclusion, who = concluded(joined(size), *told), f"rank {culprit}"
    if refuses:
        assert conclusion == Conclusion("no such file", status=2, culprits=(who,))
    else:
        assert conclusion.message.startswith(f"{who} was killed by SIGKILL after epoch 1, step 1; ")
        assert (conclusion.status, conclusion.culprits, conclusion.hang) == (1, (who,), False)


@given(st.lists(st.floats(0, TIMEOUT * 0.99), min_size=1, max_size=20), st.data())
def test_a_job_lasts_while_anybody_makes_progress_and_no_longer(pauses: list[float], data: st.DataObject) -> None:
    watch, now, counts = joined(3), 0.0, [1, 1, 1]
    for pause in pauses:
        now += pause
        assert watch.decide(now) is None
        rank = data.draw(st.integers(0, 2))
        counts[rank] += 1
        tell(watch, (rank, Progress(counts[rank], 1, counts[rank])), now=now)
    assert watch.next_look() == now + TIMEOUT
    # To print is no progress.
    tell(watch, (0, Printed(b"still here\n", error=True)), now=now + TIMEOUT / 2)
    conclusion, fewest = decided(watch, now + TIMEOUT), min(counts)
    assert conclusion.hang
    assert conclusion.culprits == tuple(f"rank {rank}" for rank in range(3) if counts[rank] == fewest)
    behind = f"exchange {fewest} was its last, {max(counts)} that of other ranks"
    assert (behind in conclusion.message) is (max(counts) > fewest)


@given(st.data())
def test_looking_again_is_never_put_off_beyond_the_next_decision(data: st.DataObject) -> None:
    watch, now = joined(3, "scheduler"), 0.0
    told: list[Told] = [(0, WELL), (1, Ended(1)), ("scheduler", WELL), (2, Progress(2)), (2, CLOSED)]
    for one in data.draw(st.permutations(told))[: data.draw(st.integers(0, 5))]:
        now += data.draw(st.floats(0, 0.1))
        tell(watch, one, now=now)
    if watch.decide(now) is None:
        look = watch.next_look()
        assert look > now
        assert watch.decide(look - 1e-6) is None
        assert watch.decide(look) is not None


@pytest.mark.parametrize(
    ("watch", "told", "message"),
    [
        (watch_over(3), [(1, Progress())], "rank 0, rank 2 did not join within 12 s"),
        # Who has arrived waits for one that has not.
        (watch_over(3), [(0, Arrived()), (2, Arrived())], "rank 1 did not join within 12 s"),
        (watch_over(2), [(0, Arrived()), (1, Arrived())], "rank 0, rank 1 did not join within 10 s"),
        # To end well is progress, and who has done its part is not to blame for what comes later.
        (joined(2), [(1, WELL)], "rank 0 made no progress for 12 s after epoch 1, step 1"),
        # A rank that counts anew has not gone back.
        (
            joined(2, exchanges=5),
            [(0, Progress(6)), (0, Progress(1))],
            "rank 1 made no progress for 12 s after epoch 1, step 5: exchange 5 was its last, 6 that of other ranks",
        ),
        # A server that ends well is the cause only if the ranks then get stuck.
        (
            joined(2, "server 0"),
            [("server 0", WELL)],
            "server 0 ended while the ranks were at work, before the other processes",
        ),
    ],
)
def test_those_are_named_that_keep_the_others_waiting(watch: Watch, told: Sequence[Told], message: str) -> None:
    tell(watch, *told, now=2.0)
    assert watch.decide(TIMEOUT + 1.9) is None
    conclusion = decided(watch, TIMEOUT + 2)
    assert (conclusion.message, conclusion.hang) == (message, True)
    assert all(name in message for name in conclusion.culprits)


@given(st.permutations([0, 1, 2]), st.integers(0, 2), st.sampled_from([1, -6]))
def test_its_own_failure_comes_before_what_others_notice(order: list[int], culprit: int, status: int) -> None:
    watch = joined(3)
    for rank in order:
        # The first reason that it gives is its reason.
        reasons = [Failed(reason, by_others=False, status=1) for reason in ("NaN", "cannot tidy up")]
        said = reasons if rank == culprit else [CLOSED] if status == 1 else []
        tell(watch, *((rank, one) for one in (*said, Ended(1 if rank == culprit else status))), now=1.0)
    # All are gone, so there is nothing to wait for.
    assert watch.decide(1.0) == Conclusion(f"rank {culprit}: NaN", culprits=(f"rank {culprit}",))


FULL = Failed("full disk", by_others=False, status=1)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([(1, NO_FILE), (0, FULL)], "rank 0: full disk"),
        ([(1, FULL), (0, FULL)], "rank 0, rank 1: full disk"),
        ([(1, CLOSED), (0, CLOSED)], "rank 0, rank 1: closed by peer"),
        ([(0, CLOSED), ("server 0", Ended(-15))], "server 0 was killed by SIGTERM while the ranks were at work; it"),
        ([(0, Ended(1)), ("server 0", Ended(1))], "server 0 ended with status 1 while the ranks were at work; it"),
        ([("server 0", Ended(1)), (1, KILLED)], "rank 1 was killed by SIGKILL after epoch 1, step 1"),
        ([(1, WELL), (0, ON), (0, CLOSED)], "rank 1 ended after epoch 1, step 1, before the other processes"),
        # An exchange does not take back which batch was the last.
        ([(1, Progress(6)), (1, Ended(-15))], "rank 1 was killed by SIGTERM after epoch 1, step 1; it said nothing"),
        ([(1, Ended(-6)), (0, Ended(1))], "rank 1 was killed by SIGABRT after epoch 1, step 1; it said nothing"),
        # One that waits for another which hangs is not to blame.
        ([(0, ON), (0, CLOSED), (0, Ended(1))], "rank 1 made no progress for 3 s after epoch 1, step 1"),
    ],
)
def test_one_process_is_named(told: Sequence[Told], message: str) -> None:
    watch = joined(2, *SERVERS)
    for number, one in enumerate(told):
        tell(watch, one, now=1 + number / 100)
    assert concluded(watch, now=2.0).message.startswith(message)


@pytest.mark.parametrize("report", [(), ((1, NO_FILE),)])
def test_a_refusal_by_all_that_failed_is_a_bad_request(report: Sequence[Told]) -> None:
    said = Printed(b"warning\nparallel-core: no such file\n", error=True)
    conclusion = concluded(watch_over(2), (1, said), *report, (1, Ended(2)))
    assert conclusion == Conclusion("no such file", status=2, culprits=("rank 1",))


def test_a_rank_that_ends_well_without_having_joined_leaves_the_others_alone() -> None:
    conclusion = concluded(watch_over(2), (1, WELL), (0, Progress()), (0, CLOSED))
    assert conclusion.message == "rank 1 ended before it had joined, before the other processes"
    assert concluded(watch_over(2), (0, CLOSED), now=9.0).message == "rank 1 did not join within 10 s"


def test_a_deadline_does_not_cut_short_the_search_for_a_cause() -> None:
    watch = joined(4)
    tell(watch, (1, CLOSED), now=TIMEOUT - 0.5)
    assert watch.decide(TIMEOUT) is None
    assert concluded(watch, (2, KILLED), now=TIMEOUT).culprits == ("rank 2",)


@given(st.lists(st.binary(max_size=30), max_size=20), st.sampled_from([1, 100_000]))
def test_the_last_line_is_quoted_however_it_was_cut_and_the_last_words_kept(pieces: list[bytes], times: int) -> None:
    watch = joined(2)
    words = itertools.chain([b"many words\n" * times], pieces, [b"\nthe last ", b"word\n\n"])
    tell(watch, *((1, Printed(piece, error=True)) for piece in words))
    assert len(watch.processes["rank 1"].errors) < 20_000
    message = concluded(watch, (1, Ended(-6))).message
    assert message == "rank 1 was killed by SIGABRT after epoch 1, step 1; it said last: the last word"


@given(st.sets(st.integers(0, 3)), st.integers(0, 3))
def test_of_ranks_asked_for_their_stacks_those_that_give_none_are_named(answered: set[int], absent: int) -> None:
    watch = watch_over(4)
    tell(watch, *((rank, Arrived() if rank == absent else Progress(1)) for rank in range(4)))
    conclusion = decided(watch, TIMEOUT)
    after = watch.after_stacks(conclusion, {f"rank {rank}" for rank in answered}, TIMEOUT)
    silent = {*range(4)} - answered
    # One that has not joined may not have begun to run.
    if silent <= {absent}:
        assert after == conclusion
    else:
        assert after.culprits == tuple(f"rank {rank}" for rank in sorted(silent))
        assert "did not answer for 10 s" in after.message
