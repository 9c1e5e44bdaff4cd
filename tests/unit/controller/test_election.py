"""Who leads a replicated log, as a pure decision: of which copies, and what the placement says."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.model.cluster import (
    REPLICATED,
    Abandonment,
    LogCopy,
    Placement,
    PlacementState,
)
from anabranch.controller.domain.cluster.election import (
    Answer,
    CopyEnd,
    Promised,
    Silent,
    elect,
    elect_unclean,
    frozen,
    undecided,
    won,
    won_unclean,
)

A, B, C = LogCopy("a", "a-1"), LogCopy("b", "b-1"), LogCopy("c", "c-1")
ISR = (A, B, C)
LED = Placement(
    3, ("a", "b", "c"), 7, "log", PlacementState.OPEN, log_home=REPLICATED, isr=ISR, isr_min=2,
    pinned=True, reason="x", target="b", wanted=("b", "c", "d"),
)  # fmt: skip
SILENT = Silent("unavailable")
NO_COPY = Promised("", None)


def at(copy: LogCopy, epoch: int, number: int) -> Promised:
    return Promised(copy.copy_id, CopyEnd(epoch, number, 10 * number))


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        ({"a": at(A, 7, 5), "b": at(B, 7, 6), "c": at(C, 7, 4)}, "b"),
        # a higher epoch counts more than a higher number
        ({"a": at(A, 6, 90), "b": at(B, 7, 1), "c": at(C, 7, 0)}, "b"),
        # equal copies: the first one
        ({"a": at(A, 7, 5), "b": at(B, 7, 5), "c": at(C, 7, 5)}, "a"),
        ({"b": at(B, 7, 5), "c": at(C, 7, 5)}, "b"),
        # one is enough
        ({"a": SILENT, "b": SILENT, "c": at(C, 1, 0)}, "c"),
        # a copy of another life does not win, however long it is
        ({"a": at(A, 7, 5), "b": at(LogCopy("b", "b-2"), 9, 99)}, "a"),
        ({"b": at(LogCopy("b", "b-2"), 9, 99)}, ""),
        ({"b": NO_COPY, "c": at(C, 2, 2)}, "c"),
        # neither does a copy that is not in sync
        ({"d": at(LogCopy("d", "d-1"), 9, 99), "a": at(A, 7, 1)}, "a"),
        ({"a": SILENT, "b": NO_COPY}, ""),
        ({}, ""),
    ],
)
def test_the_in_sync_copy_with_most_messages_wins(
    answers: Mapping[str, Answer], winner: str
) -> None:
    assert elect(ISR, answers) == winner


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        ({"a": at(A, 7, 9), "b": at(B, 7, 5), "c": at(C, 7, 6)}, "c"),
        ({"a": at(A, 7, 9), "b": SILENT, "c": NO_COPY}, "a"),
    ],
)
def test_the_store_at_which_the_container_failed_wins_only_if_no_other_can(
    answers: Mapping[str, Answer], winner: str
) -> None:
    assert elect(ISR, answers, shunned="a") == winner


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.one_of(
            st.just(SILENT),
            st.just(NO_COPY),
            st.builds(
                Promised,
                st.sampled_from(["a-1", "b-1", "c-1", "a-2", "d-1"]),
                st.builds(CopyEnd, st.integers(1, 9), st.integers(0, 9), st.integers(0, 99)),
            ),
        ),
    )
)
def test_nobody_wins_whose_copy_the_isr_does_not_name(answers: dict[str, Answer]) -> None:
    winner = elect(ISR, answers)
    named = {copy.node_id: copy.copy_id for copy in ISR}
    able = {
        name: answer.end.position
        for name, answer in answers.items()
        if isinstance(answer, Promised) and answer.end and named.get(name) == answer.copy_id
    }
    assert bool(winner) is bool(able)
    assert not winner or able[winner] == max(able.values())


def test_a_freeze_raises_the_epoch_and_keeps_the_isr() -> None:
    begun = frozen(LED)
    assert (begun.container_epoch, begun.state) == (8, PlacementState.ELECTING)
    assert (begun.isr, begun.replicas, begun.log_id) == (ISR, LED.replicas, "log")
    assert (begun.target, begun.reason) == ("", "")
    assert begun.wanted == LED.wanted, "the operator's wish holds"


def test_the_winner_leads_the_list_and_the_log_goes_on() -> None:
    begun = frozen(replace(LED, restarts=2))
    after = won(begun, "c")
    assert after == replace(
        begun, replicas=("c", "a", "b"), state=PlacementState.ASSIGNED, pinned=False
    )
    assert (after.restarts, after.isr, after.container_epoch) == (2, ISR, 8)
    assert won(begun, "a").pinned, "it stays where the operator pinned it"


def test_an_in_sync_copy_whose_store_is_no_replica_any_more_leads_all_the_same() -> None:
    begun = replace(frozen(LED), replicas=("a", "b"))
    assert won(begun, "c").replicas == ("c", "a", "b")


def test_an_election_without_an_answer_says_what_each_member_answered() -> None:
    answers: dict[str, Answer] = {
        "a": SILENT, "b": NO_COPY, "c": at(LogCopy("c", "c-2"), 9, 9),
    }  # fmt: skip
    told = undecided(frozen(LED), answers)
    assert told.reason == (
        "leader-offline: a does not promise (unavailable), b has no copy any more, "
        "c has another copy than the one that was in sync"
    )
    assert undecided(told, answers) == told, "it is written once"
    assert "no copy of the log is in sync" in undecided(replace(told, isr=()), {}).reason


def test_an_unclean_election_takes_the_longest_copy_and_records_the_loss() -> None:
    found = elect_unclean({"a": SILENT, "b": NO_COPY, "d": at(LogCopy("d", "d-4"), 6, 2)})
    assert found == (LogCopy("d", "d-4"), CopyEnd(6, 2, 20))
    copy, end = found
    after = won_unclean(frozen(replace(LED, restarts=3)), copy, end, 1234)
    assert (after.replicas, after.isr) == (("d", "a", "b", "c"), (copy,))
    assert after.abandoned == Abandonment("log", 20, 1234)
    assert (after.state, after.restarts) == (PlacementState.ASSIGNED, 0)


@pytest.mark.parametrize(
    ("answers", "node"),
    [
        ({"a": at(A, 7, 5), "b": at(B, 7, 6)}, "b"),
        ({"b": at(B, 7, 6), "a": at(A, 7, 6)}, "a"),
        ({"a": at(A, 6, 60), "b": at(B, 7, 0)}, "b"),
    ],
)
def test_of_copies_out_of_sync_the_longest_is_taken(
    answers: Mapping[str, Answer], node: str
) -> None:
    found = elect_unclean(answers)
    assert found is not None
    assert found[0].node_id == node


def test_without_any_copy_nothing_is_elected() -> None:
    assert elect_unclean({"a": SILENT, "b": NO_COPY}) is None
