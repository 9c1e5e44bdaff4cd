"""Transactions: deadlines, segments, answers, memory, and what no decision may break."""

import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.contracts.transactions import (
    BeginTransaction,
    TransactionInfo,
    TransactionKey,
)
from anabranch.common.errors import InvalidRequest
from anabranch.common.eventsourcing.message import KIND_EVENTS, KIND_SNAPSHOT
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import SegmentRange
from anabranch.common.model.transaction import (
    CLOCK_SKEW_MS,
    EXECUTION_MS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    PARTS_MAX,
    TransactionState,
    transaction_id,
)
from anabranch.controller.domain.transaction import answers, decide, events, segments
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.invariants import TRANSACTION
from anabranch.controller.domain.transaction.state import ApplicationVersion, Transaction
from kit.thorough import one_in

NOW_MS = 1_700_000_000_000
TXN = transaction_id(NOW_MS, b"0123456789")
PARTS = tuple(letter * 32 for letter in "abc")
PARENTS = (
    SegmentRange(segment_id(2, 3), KeyRange(0.0, 0.5)),
    SegmentRange(segment_id(0, 1), KeyRange(0.5, 1.0)),
)


def begun(
    *stored: TransactionEvent,
    lease_ms: int = 10_000,
    execution_ms_max: int = 0,
    parts: bool = False,
    key: TransactionKey | None = None,
) -> Transaction:
    asked = BeginTransaction(
        scope="s",
        stream="x",
        lease_ms=lease_ms,
        execution_ms_max=execution_ms_max,
        writer="flights",
        parts=parts,
        key=key,
    )
    first = decide.opened(asked, Opening(TXN, 3, 2, NOW_MS))
    return TRANSACTION.apply(Transaction(), [first, *stored])


def with_parts(*stored: TransactionEvent) -> Transaction:
    added = [events.TransactionPartAdded(part=part) for part in PARTS]
    return begun(*added, *stored, parts=True)


def committing(*parts: str) -> events.TransactionCommitting:
    return events.TransactionCommitting(
        parts=parts, writer_id="", timestamp_ms=None, at_ms=NOW_MS + 1
    )


ABORTING = events.TransactionAborting(reason="asked", at_ms=NOW_MS + 1)

# --- deadlines ----------------------------------------------------------------------------------

LEASES = st.integers(LEASE_MS_MIN - 2, LEASE_MS_MAX + 2)
PINGS = st.lists(st.tuples(st.integers(0, 40_000), st.none() | LEASES), max_size=12)


@given(
    lease_ms=st.integers(LEASE_MS_MIN, LEASE_MS_MAX),
    beyond_ms=st.none() | st.integers(0, 100_000),
    pings=PINGS,
    skew_ms=st.integers(-CLOCK_SKEW_MS, CLOCK_SKEW_MS),
)
@settings(max_examples=200 // one_in(4))
def test_a_ping_never_shortens_and_nobody_aborts_before_the_end_of_what_was_promised(
    lease_ms: int, beyond_ms: int | None, pings: list[tuple[int, int | None]], skew_ms: int
) -> None:
    limit = 0 if beyond_ms is None else lease_ms + beyond_ms
    txn = begun(lease_ms=lease_ms, execution_ms_max=min(limit, EXECUTION_MS_MAX))
    now_ms = NOW_MS
    for wait_ms, asked_ms in pings:
        now_ms += wait_ms
        left_before_ms = txn.deadline_ms - CLOCK_SKEW_MS - now_ms

        decision = decide.ping(txn, asked_ms, now_ms)

        after = TRANSACTION.apply(txn, decision.events)
        if decision.events:
            TRANSACTION.check(txn, after)
        assert after.deadline_ms >= txn.deadline_ms
        assert decision.lease_left_ms >= max(0, left_before_ms)
        if not decision.refusal:
            assert decision.lease_left_ms >= (asked_ms or txn.lease_ms)
        if decision.lease_left_ms:
            promised_ms = now_ms + decision.lease_left_ms
            assert decide.expire(after, promised_ms - 1 + skew_ms) == ()
        txn = after

    assert txn.deadline_ms <= txn.opened_ms + txn.execution_ms_max + CLOCK_SKEW_MS
    assert decide.expire(txn, txn.deadline_ms)


@given(lease_ms=LEASES, wait_ms=st.integers(0, 20_000))
@settings(max_examples=100 // one_in(4))
def test_a_refused_ping_leaves_everything_as_it_is(lease_ms: int, wait_ms: int) -> None:
    txn = begun(lease_ms=1_000, execution_ms_max=10_000)

    decision = decide.ping(txn, lease_ms, NOW_MS + wait_ms)

    is_too_late = wait_ms + lease_ms > 10_000
    is_out_of_range = not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX
    assert bool(decision.refusal) == (is_too_late or is_out_of_range)
    if decision.refusal:
        assert decision.events == ()
        assert decision.lease_left_ms == max(0, txn.deadline_ms - 1_000 - NOW_MS - wait_ms)


def test_whoever_pings_often_has_little_stored() -> None:
    txn, stored = begun(lease_ms=10_000), 0
    for now_ms in range(NOW_MS, NOW_MS + 100_000, 1_000):
        decision = decide.ping(txn, None, now_ms)
        stored += len(decision.events)
        txn = TRANSACTION.apply(txn, decision.events)

    assert stored == 16


@pytest.mark.parametrize(
    ("lease_ms", "limit_ms"), [(1_000, 1_000_000), (86_400, 86_400_000), (600_000, 86_400_000)]
)
def test_the_usual_limit_is_a_thousand_leases_but_at_most_a_day(
    lease_ms: int, limit_ms: int
) -> None:
    assert begun(lease_ms=lease_ms).execution_ms_max == limit_ms


def test_a_refused_lease_names_the_bounds() -> None:
    with pytest.raises(InvalidRequest) as refused:
        begun(lease_ms=LEASE_MS_MAX + 1)

    assert refused.value.remedy == "ask for 1000 to 600000 ms"


def test_another_lease_of_a_ping_is_not_that_of_the_next_one() -> None:
    txn = begun(events.TransactionPinged(deadline_ms=NOW_MS + 91_000, lease_ms=60_000))

    late = decide.ping(txn, None, NOW_MS + 90_000)

    assert late.events == (events.TransactionPinged(deadline_ms=NOW_MS + 106_000, lease_ms=10_000),)


# --- segments and answers -----------------------------------------------------------------------


def test_a_transaction_has_a_segment_beside_each_of_the_epoch() -> None:
    txn = begun()

    names = [f"s/x/3.#epoch.2#transaction.{TXN}", f"s/x/1.#epoch.0#transaction.{TXN}"]
    assert segments.segments_of(txn, PARENTS) == names
    assert list(segments.all_segments_of(txn, PARENTS)) == names
    assert segments.sources_of(txn, PARENTS[0].segment_id) == names[:1]
    assert segments.dropped_of(txn, PARENTS[0].segment_id) == []


def test_a_part_has_one_too_and_those_that_count_are_merged_in_their_order() -> None:
    txn = with_parts(committing(PARTS[2], PARTS[0]))
    parent = PARENTS[0].segment_id
    a, b, c = (f"s/x/3.#epoch.2#transaction.{TXN}.{part}" for part in PARTS)

    assert segments.segments_of(txn, PARENTS[:1], PARTS[1]) == [b]
    assert list(segments.all_segments_of(txn, PARENTS[:1])) == [a, b, c]
    assert segments.sources_of(txn, parent) == [c, a]
    assert segments.dropped_of(txn, parent) == [b]


def test_a_transaction_with_parts_that_has_none_has_no_segments() -> None:
    txn = begun(committing(), parts=True)

    assert list(segments.all_segments_of(txn, PARENTS)) == []
    assert segments.sources_of(txn, PARENTS[0].segment_id) == []


def test_it_is_told_where_to_write() -> None:
    first, second = answers.to_write(begun(), PARENTS)

    assert first.name == f"s/x/3.#epoch.2#transaction.{TXN}"
    assert (first.segment_id, first.key_start, first.key_end) == (segment_id(2, 3), 0.0, 0.5)
    assert (second.segment_id, second.key_start, second.key_end) == (1, 0.5, 1.0)


def test_an_open_transaction_is_described() -> None:
    key = TransactionKey(application="app", version=7)

    assert answers.described(begun(key=key), NOW_MS + 4_000) == TransactionInfo(
        transaction_id=TXN,
        state=TransactionState.OPEN,
        incarnation=3,
        stream_epoch=2,
        writer="flights",
        opened_ms=NOW_MS,
        age_ms=4_000,
        lease_ms=10_000,
        lease_left_ms=11_000,
        deadline_ms=NOW_MS + 16_000,
        key=key,
    )


def test_one_with_an_outcome_has_no_deadline() -> None:
    ended = with_parts(ABORTING, events.TransactionAborted(at_ms=NOW_MS + 5))

    told = answers.described(ended, NOW_MS + 7)

    assert (told.state, told.ended_ms) == (TransactionState.ABORTED, NOW_MS + 5)
    assert (told.deadline_ms, told.lease_left_ms) == (0, 0)
    assert (told.has_parts, told.part_count) == (True, 3)


def test_a_clock_that_is_behind_makes_nobody_younger_than_new() -> None:
    assert answers.described(begun(), NOW_MS - 900).age_ms == 0


def test_parts_are_bounded() -> None:
    full = replace(begun(parts=True), parts=tuple(f"{n:032x}" for n in range(PARTS_MAX)))

    assert decide.add_part(full, f"{0:032x}") == ()
    with pytest.raises(InvalidRequest):
        decide.add_part(full, "f" * 32)


# --- memory and storage -------------------------------------------------------------------------


def read_back(number: int) -> Transaction:
    """As a controller has it that has read it from its store."""
    key = TransactionKey(application="app", version=2**40 + number)
    asked = BeginTransaction(scope="s", stream="x", writer="flights", key=key)
    at = Opening(transaction_id(NOW_MS + number, b"0123456789"), 3, 2, NOW_MS + number)
    body = TRANSACTION.encode([decide.opened(asked, at)])
    return TRANSACTION.fold(
        Transaction(), EventMessage("subject", 1, 1, "a", KIND_EVENTS, 1, 0, body)
    )


def test_an_open_transaction_costs_less_than_600_bytes_of_its_own() -> None:
    one, other = read_back(1), read_back(2)

    shared = {id(value) for value in reached(other)}
    own = {id(value): value for value in reached(one) if id(value) not in shared}

    assert one.key is not None
    assert one.status is TransactionState.OPEN
    assert sum(sys.getsizeof(value) for value in own.values()) < 600


def reached(value: object) -> Iterator[object]:
    """A value and all that it consists of."""
    yield value
    names = getattr(value, "__slots__", None) if not isinstance(value, tuple) else None
    inside = value if isinstance(value, tuple) else [getattr(value, name) for name in names or ()]
    for each in inside:
        if not isinstance(each, TransactionState):
            yield from reached(each)


def test_a_snapshot_is_the_state() -> None:
    txn = replace(with_parts(committing(PARTS[1])), key=ApplicationVersion("app", 7))
    body = TRANSACTION.encode_state(txn)

    read = TRANSACTION.fold(
        Transaction(), EventMessage("subject", 1, 1, "a", KIND_SNAPSHOT, 1, 0, body)
    )

    assert read == txn
    assert isinstance(read.key, ApplicationVersion)


# --- invariants ---------------------------------------------------------------------------------

OPEN = begun()
PARTED = with_parts()
COMMITTING = with_parts(committing(PARTS[2], PARTS[0]))
COMMITTED = TRANSACTION.apply(COMMITTING, [events.TransactionCommitted(at_ms=NOW_MS + 2)])
GOING = begun(ABORTING)
GONE = TRANSACTION.apply(GOING, [events.TransactionAborted(at_ms=NOW_MS + 2)])
LAST_MS = OPEN.opened_ms + OPEN.execution_ms_max + CLOCK_SKEW_MS


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Transaction(), OPEN),
        (OPEN, replace(OPEN, deadline_ms=LAST_MS)),
        (begun(parts=True), PARTED),
        (PARTED, COMMITTING),
        (COMMITTING, COMMITTED),
        (OPEN, GOING),
        (GOING, GONE),
    ],
)
def test_what_really_happens_breaks_none(before: Transaction, after: Transaction) -> None:
    TRANSACTION.check(before, after)


@pytest.mark.parametrize(
    ("number", "before", "after"),
    [
        (1, OPEN, GONE),
        (1, OPEN, replace(COMMITTED, ended_ms=1)),
        (1, COMMITTING, replace(COMMITTING, status=TransactionState.ABORTING)),
        (1, GOING, replace(GOING, status=TransactionState.COMMITTING)),
        (1, GOING, OPEN),
        (1, GONE, OPEN),
        (1, COMMITTED, COMMITTED),
        (1, Transaction(), GOING),
        (2, OPEN, replace(OPEN, transaction_id="f" * 32)),
        (2, OPEN, replace(OPEN, incarnation=4)),
        (2, OPEN, replace(OPEN, stream_epoch=3)),
        (2, OPEN, replace(OPEN, key=ApplicationVersion("app", 7))),
        (2, OPEN, replace(OPEN, lease_ms=20_000)),
        (2, OPEN, replace(OPEN, has_parts=True)),
        (3, Transaction(), replace(OPEN, lease_ms=LEASE_MS_MIN - 1)),
        (3, Transaction(), replace(OPEN, execution_ms_max=9_999)),
        (3, Transaction(), replace(OPEN, execution_ms_max=EXECUTION_MS_MAX + 1)),
        (4, OPEN, replace(OPEN, deadline_ms=OPEN.deadline_ms - 1)),
        (4, OPEN, replace(OPEN, deadline_ms=LAST_MS + 1)),
        (4, COMMITTING, replace(COMMITTED, deadline_ms=LAST_MS)),
        (5, PARTED, replace(COMMITTING, parts=(*PARTS, "d" * 32))),
        (5, OPEN, replace(OPEN, parts=PARTS)),
        (5, PARTED, replace(PARTED, parts=PARTS[1:])),
        (5, PARTED, replace(PARTED, parts=(*PARTS, PARTS[0]))),
        (5, begun(parts=True), replace(PARTED, parts=tuple(map(str, range(PARTS_MAX + 1))))),
        (6, PARTED, replace(COMMITTING, committed_parts=("d" * 32,))),
        (6, PARTED, replace(COMMITTING, committed_parts=(PARTS[0], PARTS[0]))),
        (6, COMMITTING, replace(COMMITTED, committed_parts=PARTS[:1])),
        (6, COMMITTING, replace(COMMITTED, timestamp_ms=1)),
        (6, OPEN, replace(GOING, writer_id="f" * 32)),
        (7, GOING, replace(GONE, ended_ms=0)),
        (7, OPEN, replace(GOING, ended_ms=1)),
    ],
)
def test_a_decision_that_breaks_an_invariant_of_transactions_is_stopped(
    number: int, before: Transaction, after: Transaction
) -> None:
    with pytest.raises(AssertionError, match=f"^TXN-{number}:"):
        TRANSACTION.check(before, after)


def test_every_field_stays_but_what_an_event_changes() -> None:
    """So that a new field is thought of here."""
    changing = {"status", "deadline_ms", "parts", "committed_parts", "writer_id", "timestamp_ms"}
    same = {f.name for f in fields(Transaction)} - changing - {"ended_ms", "abort_reason"}

    for name in same:
        other: dict[str, Any] = {name: object()}
        with pytest.raises(AssertionError, match=r"^TXN-2:"):
            TRANSACTION.check(OPEN, replace(OPEN, **other))
