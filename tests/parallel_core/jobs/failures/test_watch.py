"""The watch decides from messages and times alone, which are synthetic here."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallel_core.jobs.failures.causes import Conclusion
from parallel_core.jobs.failures.watch import LATE_NEWS_SECONDS, Watch
from parallel_core.jobs.messages import (
    Arrived,
    Ended,
    Failed,
    FromAgent,
    Joined,
    Printed,
    Process,
    Progress,
    Report,
    Reported,
    Unstartable,
)

pytestmark = pytest.mark.long

TIMEOUT = 10.0
FINISHED = Conclusion("", status=0)


def watch_over(ranks: int, *beside: str) -> Watch:
    """Watch over ranks of host a and b in turns, and others on host a, from time 0."""
    names = [*((name, 0) for name in beside), *((f"rank {i}", i % 2) for i in range(ranks))]
    return Watch([Process(name, host, ("x",), {}) for name, host in names], ("a", "b"), TIMEOUT, 0.0)


def joined(ranks: int, *beside: str, exchanges: int = 1) -> Watch:
    watch = watch_over(ranks, *beside)
    for rank in range(ranks):
        watch.record(Reported(f"rank {rank}", Joined("ab"[rank % 2])), 0.0)
        watch.record(Reported(f"rank {rank}", Progress(exchanges, 1, exchanges)), 0.0)
    return watch


def after_grace(watch: Watch, now: float) -> Conclusion:
    conclusion = watch.decide(now + LATE_NEWS_SECONDS)
    assert conclusion is not None
    return conclusion


def reported(rank: int, report: Report) -> FromAgent:
    return Reported(f"rank {rank}", report)


@given(st.permutations(range(4)), st.integers(0, 3))
def test_a_job_is_finished_when_all_ranks_have_ended_well_and_not_before(order: list[int], servers: int) -> None:
    watch = joined(4, *(f"server {i}" for i in range(servers)))
    for rank in order:
        assert watch.decide(1.0) is None
        watch.record(Ended(f"rank {rank}", 0), 1.0)
    assert watch.decide(1.0) == FINISHED


# What may happen to a rank that is not to blame, when another one was killed.
CONSEQUENCES = st.sampled_from(
    [
        (Failed("closed by peer", by_others=True, status=1), Ended("", 1)),
        (Failed("closed by peer", by_others=True, status=1),),
        (Failed("closed by peer", by_others=True, status=1), Ended("", -6)),
        (Ended("", -6),),
        (Ended("", 1),),
        (),
    ]
)


@given(st.integers(2, 5), st.data())
def test_a_rank_killed_by_sigkill_is_the_cause_in_whichever_order_the_news_arrive(
    size: int, data: st.DataObject
) -> None:
    watch = joined(size)
    killed = data.draw(st.integers(0, size - 1))
    queues: list[list[FromAgent]] = [[Ended(f"rank {killed}", -9)]]
    for rank in set(range(size)) - {killed}:
        what = data.draw(CONSEQUENCES)
        queues.append([Ended(f"rank {rank}", e.status) if isinstance(e, Ended) else reported(rank, e) for e in what])
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        watch.record(queue.pop(0), 1.0)
    conclusion = after_grace(watch, 1.0)
    assert conclusion.culprits == (f"rank {killed}",)
    assert conclusion.status == 1
    assert f"rank {killed} on {'ab'[killed % 2]} was killed by SIGKILL after epoch 1, step 1" in conclusion.message
    assert "memory" in conclusion.message
    assert not conclusion.hang


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
        watch.record(reported(rank, Progress(counts[rank], 1, counts[rank])), now)
    assert watch.next_look() == now + TIMEOUT
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
    messages: list[FromAgent] = [
        Ended("rank 0", 0),
        Ended("rank 1", 1),
        Ended("scheduler", 0),
        reported(2, Progress(2)),
        reported(2, Failed("x", by_others=True, status=1)),
        Printed("rank 0", b"words", error=True),
    ]
    for message in data.draw(st.permutations(messages))[: data.draw(st.integers(0, 6))]:
        now += data.draw(st.floats(0, 0.1))
        watch.record(message, now)
    if watch.decide(now) is None:
        look = watch.next_look()
        assert look > now
        assert watch.decide(look - 1e-6) is None
        assert watch.decide(look) is not None


@pytest.mark.parametrize("printed", [True, False])
def test_to_print_is_no_progress(printed: bool) -> None:
    watch = joined(2)
    if printed:
        watch.record(Printed("rank 0", b"still here\n", error=True), TIMEOUT - 1)
    assert watch.decide(TIMEOUT) is not None


def test_ranks_that_have_not_joined_are_named_and_not_those_that_wait() -> None:
    watch = watch_over(3)
    watch.record(reported(1, Joined("b")), 2.0)
    assert watch.decide(TIMEOUT + 1) is None
    conclusion = watch.decide(TIMEOUT + 2)
    assert conclusion == Conclusion(
        "rank 0 on a, rank 2 on a have not joined within 12 s", culprits=("rank 0", "rank 2"), hang=True
    )


def test_a_rank_that_has_arrived_is_not_to_blame_for_one_that_has_not() -> None:
    watch = watch_over(3)
    watch.record(reported(0, Arrived("host-0")), 2.0)
    watch.record(reported(2, Arrived("host-2")), 3.0)
    assert watch.decide(TIMEOUT + 2) is None
    conclusion = watch.decide(TIMEOUT + 3)
    assert conclusion == Conclusion("rank 1 on b has not joined within 13 s", culprits=("rank 1",), hang=True)


def test_if_all_have_arrived_and_none_joins_all_are_named() -> None:
    watch = watch_over(2)
    for rank in (0, 1):
        watch.record(reported(rank, Arrived(f"host-{rank}")), 0.0)
    conclusion = watch.decide(TIMEOUT)
    assert conclusion is not None
    assert conclusion.message == "rank 0 on host-0, rank 1 on host-1 have not joined within 10 s"


def test_a_rank_that_waits_for_one_that_never_joins_is_not_to_blame() -> None:
    watch = watch_over(2)
    watch.record(reported(0, Failed("timed out", by_others=True, status=1)), 9.0)
    conclusion = after_grace(watch, 9.0)
    assert conclusion.message == "rank 1 on b has not joined within 10 s"
    assert conclusion.hang


def test_a_rank_that_waits_for_one_that_hangs_is_not_to_blame() -> None:
    watch = joined(3)
    watch.record(reported(0, Progress(2, 1, 2)), 1.0)
    watch.record(reported(0, Failed("timed out", by_others=True, status=1)), 9.0)
    watch.record(Ended("rank 0", 1), 9.0)
    watch.record(reported(2, Progress(2, 1, 2)), 1.0)
    conclusion = after_grace(watch, 9.0)
    assert conclusion.hang
    assert conclusion.message.startswith("rank 1 on b has made no progress for 10 s after epoch 1, step 1")


@given(st.permutations([0, 1, 2]), st.integers(0, 2))
def test_its_own_failure_comes_before_what_others_notice(order: list[int], culprit: int) -> None:
    watch = joined(3)
    for rank in order:
        own = rank == culprit
        watch.record(reported(rank, Failed("NaN" if own else "closed", by_others=not own, status=1)), 1.0)
        watch.record(Ended(f"rank {rank}", 1), 1.0)
    # All are gone, so there is nothing to wait for.
    assert watch.decide(1.0) == Conclusion(f"rank {culprit} on {'ab'[culprit % 2]}: NaN", culprits=(f"rank {culprit}",))


def test_a_reason_that_all_ranks_give_is_said_once() -> None:
    watch = joined(2)
    for rank in (1, 0):
        watch.record(reported(rank, Failed("shapes differ", by_others=False, status=1)), 1.0)
    assert after_grace(watch, 1.0).message == "rank 0 on a, rank 1 on b: shapes differ"


def test_a_failure_that_all_notice_and_none_caused_is_said_as_it_is() -> None:
    watch = joined(2)
    for rank in (0, 1):
        watch.record(reported(rank, Failed("the network is down", by_others=True, status=1)), 1.0)
    assert after_grace(watch, 1.0).message == "rank 0 on a, rank 1 on b: the network is down"


@pytest.mark.parametrize("with_report", [True, False])
def test_a_refusal_by_all_that_failed_is_a_bad_request(with_report: bool) -> None:
    watch = watch_over(2)
    watch.record(Printed("rank 1", b"warning\nparallel-core: no such file\n", error=True), 1.0)
    if with_report:
        watch.record(reported(1, Failed("no such file", by_others=False, status=2)), 1.0)
    watch.record(Ended("rank 1", 2), 1.0)
    assert after_grace(watch, 1.0) == Conclusion("no such file", status=2, culprits=("rank 1",))


@given(st.permutations(range(4)), st.integers(0, 3), st.data())
def test_a_refusal_by_one_is_a_bad_request_whatever_the_others_make_of_it(
    order: list[int], refuser: int, data: st.DataObject
) -> None:
    watch = joined(4)
    for rank in order:
        if rank == refuser:
            watch.record(reported(rank, Failed("there is a checkpoint", by_others=False, status=2)), 1.0)
            watch.record(Ended(f"rank {rank}", 2), 1.0)
            continue
        for what in data.draw(CONSEQUENCES):
            watch.record(Ended(f"rank {rank}", what.status) if isinstance(what, Ended) else reported(rank, what), 1.0)
    assert after_grace(watch, 1.0) == Conclusion("there is a checkpoint", status=2, culprits=(f"rank {refuser}",))


def test_a_refusal_beside_a_crash_is_a_crash() -> None:
    watch = watch_over(2)
    watch.record(reported(1, Failed("no such file", by_others=False, status=2)), 1.0)
    watch.record(reported(0, Failed("full disk", by_others=False, status=1)), 1.0)
    assert after_grace(watch, 1.0) == Conclusion("rank 0 on a: full disk", culprits=("rank 0",))


@pytest.mark.parametrize("status", [-9, -15, 1])
def test_a_server_that_dies_is_the_cause(status: int) -> None:
    watch = joined(2, "scheduler", "server 0")
    watch.record(reported(0, Failed("lost", by_others=True, status=1)), 0.9)
    watch.record(Ended("server 0", status), 1.0)
    conclusion = after_grace(watch, 1.0)
    assert conclusion.message.startswith("server 0 on a ")
    assert "while the ranks were at work" in conclusion.message


def test_a_server_that_ends_well_is_the_cause_only_if_the_ranks_then_get_stuck() -> None:
    watch = joined(2, "server 0")
    watch.record(Ended("server 0", 0), 1.0)
    assert watch.decide(1.0 + LATE_NEWS_SECONDS) is None
    conclusion = watch.decide(1.0 + TIMEOUT)
    assert conclusion is not None
    assert conclusion.message == "server 0 on a ended while the ranks were at work, before the others"
    for rank in (0, 1):
        watch.record(Ended(f"rank {rank}", 0), 2.0)
    assert watch.decide(2.0) == FINISHED


def test_a_rank_that_ends_well_before_the_others_is_the_cause_if_they_needed_it() -> None:
    watch = joined(2)
    watch.record(Ended("rank 1", 0), 1.0)
    watch.record(reported(0, Progress(2, 1, 2)), 1.0)
    watch.record(reported(0, Failed("closed", by_others=True, status=1)), 1.0)
    assert after_grace(watch, 1.0).message == "rank 1 on b ended after epoch 1, step 1, before the others"


def test_a_rank_that_has_done_its_part_is_not_to_blame_for_what_comes_later() -> None:
    watch = joined(2)
    watch.record(Ended("rank 1", 0), 1.0)
    # To end well is progress.
    assert watch.decide(0.5 + TIMEOUT) is None
    conclusion = watch.decide(1.0 + TIMEOUT)
    assert conclusion is not None
    assert conclusion.message.startswith("rank 0 on a has made no progress for 11 s")
    assert conclusion.message.endswith("; rank 1 on b had ended by then")


def test_a_lost_agent_is_the_cause_of_all_that_its_processes_do_not_say() -> None:
    watch = joined(4)
    watch.record(reported(0, Failed("closed", by_others=True, status=1)), 1.0)
    watch.record(Ended("rank 2", -6), 1.0)
    watch.lose_agent(1, "connection reset", 1.5)
    assert after_grace(watch, 1.0).message == "the agent on b ended by itself: connection reset"


def test_an_agent_whose_processes_have_ended_is_no_loss() -> None:
    watch = joined(2)
    watch.record(Ended("rank 1", 0), 1.0)
    watch.lose_agent(1, "connection reset", 1.5)
    assert watch.decide(1.5 + LATE_NEWS_SECONDS) is None
    watch.record(Ended("rank 0", 0), 3.0)
    assert watch.decide(3.0) == FINISHED


def test_a_deadline_does_not_cut_short_the_search_for_a_cause() -> None:
    watch = joined(4)
    watch.lose_agent(1, "connection reset", TIMEOUT - 0.5)
    assert watch.decide(TIMEOUT) is None
    assert after_grace(watch, TIMEOUT - 0.5).message == "the agent on b ended by itself: connection reset"


def test_the_first_reason_that_a_rank_gives_is_its_reason() -> None:
    watch = joined(2)
    for reason in ("full disk", "cannot tidy up"):
        watch.record(reported(1, Failed(reason, by_others=False, status=1)), 1.0)
    assert after_grace(watch, 1.0).message == "rank 1 on b: full disk"


def test_a_rank_that_ends_well_without_having_joined_leaves_the_others_alone() -> None:
    watch = watch_over(2)
    watch.record(Ended("rank 1", 0), 1.0)
    watch.record(reported(0, Joined("a")), 1.0)
    watch.record(reported(0, Failed("closed", by_others=True, status=1)), 2.0)
    assert after_grace(watch, 2.0).message == "rank 1 on b ended before it had joined, before the others"


def test_a_process_that_cannot_be_started_is_named_with_the_reason() -> None:
    watch = watch_over(2)
    watch.record(Unstartable("rank 1", "x: No such file or directory"), 0.1)
    conclusion = after_grace(watch, 0.1)
    assert conclusion.message == "rank 1 on b could not be started: x: No such file or directory"


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_the_last_line_is_quoted_however_it_was_cut(pieces: list[bytes]) -> None:
    watch = joined(2)
    for piece in itertools.chain(pieces, [b"\nthe last ", b"word\n\n"]):
        watch.record(Printed("rank 1", piece, error=True), 1.0)
    watch.record(Ended("rank 1", -6), 1.0)
    message = after_grace(watch, 1.0).message
    assert message == "rank 1 on b was killed by SIGABRT after epoch 1, step 1; it said last: the last word"


def test_an_exchange_does_not_take_back_which_batch_was_the_last() -> None:
    watch = joined(2, exchanges=5)
    watch.record(reported(1, Progress(6)), 1.0)
    watch.record(Ended("rank 1", -15), 1.0)
    assert after_grace(watch, 1.0).message == "rank 1 on b was killed by SIGTERM after epoch 1, step 5"


def test_a_rank_that_counts_anew_has_not_gone_back() -> None:
    watch = joined(2, exchanges=5)
    watch.record(reported(0, Progress(6)), 1.0)
    watch.record(reported(0, Progress(1)), 2.0)
    conclusion = watch.decide(2.0 + TIMEOUT)
    assert conclusion is not None
    assert conclusion.culprits == ("rank 1",)
    assert conclusion.message.endswith("5 exchanges launched, while others have launched 6")


def test_words_are_kept_to_their_end() -> None:
    watch = joined(1)
    for number in range(10_000):
        watch.record(Printed("rank 0", b"%d\n" % number, error=True), 1.0)
    kept = watch.last_words("rank 0")
    assert len(kept) < 20_000
    assert kept.endswith("9998\n9999\n")
