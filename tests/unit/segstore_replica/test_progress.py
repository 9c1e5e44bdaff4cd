"""The ISR: what is acknowledged while it changes, and which changes are due."""

from anabranch.common.model.cluster import LogCopy
from anabranch.segstore.domain.log.replica.progress import BEFORE_ALL, Change, Progress

A, B, C = (LogCopy(node, f"copy-{node}") for node in "abc")
OPENING = (5, 0)


def opened(*isr: LogCopy, isr_min: int = 2) -> Progress:
    progress = Progress(A, isr, isr_min, OPENING)
    for copy in isr:
        progress.synced(copy, OPENING)
    return progress


def settle(progress: Progress, *, confirmed: bool) -> Change | None:
    change = progress.due()
    if change is not None:
        progress.proposed(change)
        progress.settled(confirmed=confirmed)
    return change


def test_a_message_is_committed_when_every_member_has_synced_it() -> None:
    progress = opened(A, B, C)
    progress.synced(A, (5, 3))
    progress.synced(B, (5, 3))
    assert progress.committed == OPENING
    progress.synced(C, (5, 2))
    assert progress.committed == (5, 2)


def test_nothing_is_committed_with_too_few_members() -> None:
    progress = Progress(A, [A], 2, OPENING)
    progress.synced(A, (5, 9))
    assert (progress.committed, progress.enough) == (BEFORE_ALL, False)


def test_a_lost_member_counts_until_its_removal_is_confirmed() -> None:
    progress = opened(A, B, C)
    progress.failed(C)
    progress.synced(A, (5, 1))
    progress.synced(B, (5, 1))
    change = progress.due()
    assert change == Change((A, B))
    progress.proposed(change)
    assert progress.committed == OPENING
    progress.settled(confirmed=True)
    assert progress.committed == (5, 1)


def test_a_removal_without_an_answer_is_proposed_again() -> None:
    progress = opened(A, B, C)
    progress.failed(C)
    assert settle(progress, confirmed=False) == Change((A, B))
    assert C in progress.required
    assert settle(progress, confirmed=True) == Change((A, B))
    assert progress.required == {A, B}


def test_a_copy_counts_from_the_moment_it_is_proposed() -> None:
    progress = opened(A, B)
    progress.synced(A, (5, 4))
    progress.synced(B, (5, 4))
    progress.synced(C, (5, 4))
    change = progress.due()
    assert change == Change((A, B, C))
    progress.proposed(change)
    progress.synced(A, (5, 7))
    progress.synced(B, (5, 7))
    assert progress.committed == (5, 4)


def test_a_copy_that_lacks_a_committed_message_or_the_opening_is_not_proposed() -> None:
    progress = opened(A, B)
    progress.synced(C, (4, 100))
    assert progress.due() is None
    progress.synced(A, (5, 4))
    progress.synced(B, (5, 4))
    assert progress.committed == (5, 4)
    progress.synced(C, (5, 3))
    assert progress.due() is None


def test_no_copy_is_added_before_every_member_has_the_opening() -> None:
    progress = Progress(A, [A, B], 2, OPENING)
    progress.synced(A, OPENING)
    progress.synced(C, OPENING)
    assert progress.due() is None
    progress.synced(B, OPENING)
    assert progress.due() == Change((A, B, C))


def test_a_proposed_copy_counts_until_a_later_change_is_confirmed() -> None:
    progress = opened(A, B)
    progress.synced(C, OPENING)
    assert settle(progress, confirmed=False) == Change((A, B, C))
    progress.failed(C)
    progress.synced(A, (5, 1))
    progress.synced(B, (5, 1))
    assert progress.committed == OPENING
    assert settle(progress, confirmed=True) == Change((A, B))
    assert progress.committed == (5, 1)


def test_the_committed_position_never_falls() -> None:
    progress = opened(A, B, C)
    for copy in (A, B, C):
        progress.synced(copy, (5, 6))
    assert progress.committed == (5, 6)
    progress.failed(B)
    assert progress.committed == (5, 6)


def test_one_change_is_under_way_at_a_time() -> None:
    progress = opened(A, B, C)
    progress.failed(B)
    change = progress.due()
    assert change is not None
    progress.proposed(change)
    progress.failed(C)
    assert progress.due() is None
    progress.settled(confirmed=True)
    assert progress.due() == Change((A,))


def test_a_copy_whose_store_is_no_replica_any_more_leaves() -> None:
    progress = opened(A, B, C)
    progress.leave(["c"])
    assert settle(progress, confirmed=True) == Change((A, B))
    progress.synced(C, (5, 9))
    assert progress.due() is None


def test_the_own_copy_alone_is_known_as_such() -> None:
    progress = opened(A, isr_min=1)
    assert progress.alone
    progress.synced(B, OPENING)
    change = progress.due()
    assert change is not None
    progress.proposed(change)
    assert not progress.alone


def test_a_store_that_is_lost_before_its_copy_was_proposed_is_not_proposed() -> None:
    progress = opened(A, B)
    progress.synced(C, OPENING)
    progress.failed_store(C.node_id)
    assert progress.due() is None
    progress.failed_store(B.node_id)
    assert progress.due() == Change((A,))
    progress.failed_store(A.node_id)
    assert progress.due() == Change((A,)), "the owner's copy does not fail"


def test_more_members_may_be_needed_from_now_on() -> None:
    progress = opened(A, B)
    progress.need(3)
    progress.synced(A, (5, 1))
    progress.synced(B, (5, 1))
    assert (progress.enough, progress.committed) == (False, OPENING)
    progress.need(2)
    assert progress.committed == (5, 1)
