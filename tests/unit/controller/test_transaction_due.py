"""Which transactions are due, and which are only left over, by values."""

from dataclasses import replace

import pytest

from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.stream.intents import CommitPlan, Intent, IntentKind
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import expiry
from anabranch.controller.domain.transaction.state import Transaction

REF = StreamRef(ScopeName("s"), StreamName("x"))
ACTIVE = Stream(ref=REF, incarnation=1, status=StreamState.ACTIVE)


def test_what_timers_tell_is_compared_with_the_known_deadlines() -> None:
    due = expiry.sorted_out(["a", "b", "gone"], {"a": 10, "b": 11, "c": 1}, now_ms=10)

    assert due == (["a"], {"b": 11})


def test_a_sweep_takes_the_earliest_deadlines_first() -> None:
    known = {"late": 9, "early": 3, "middle": 5, "open": 11}

    assert expiry.overdue(known, 10, limit=2) == ["early", "middle"]
    assert expiry.overdue(known, 10, limit=9) == ["early", "middle", "late"]
    assert expiry.soon_due(known, 4, within_ms=5, limit=1) == {"middle": 5}
    assert expiry.soon_due(known, 4, within_ms=5, limit=9) == {"middle": 5, "late": 9}


ENDED = Transaction(
    ref=REF, incarnation=1, transaction_id="t", status=TransactionState.COMMITTED, ended_ms=1_000
)
BATCH = Intent(IntentKind.COMMIT, 5, 0, (), commit=CommitPlan(0, ("t",), (0,)))


@pytest.mark.parametrize(
    ("txn", "stream", "expected"),
    [
        (ENDED, ACTIVE, True),
        (ENDED, replace(ACTIVE, intents=(BATCH,)), False),
        (replace(ENDED, transaction_id="u"), replace(ACTIVE, intents=(BATCH,)), True),
        (replace(ENDED, ended_ms=1_001), ACTIVE, False),
        (replace(ENDED, status=TransactionState.COMMITTING, ended_ms=0), ACTIVE, False),
        (replace(ENDED, status=TransactionState.ABORTED), ACTIVE, False),
        (
            replace(ENDED, status=TransactionState.ABORTED),
            replace(ACTIVE, status=StreamState.DELETED),
            True,
        ),
        (replace(ENDED, status=TransactionState.ABORTED), replace(ACTIVE, incarnation=2), True),
        (ENDED, replace(ACTIVE, incarnation=0), False),
    ],
)
def test_what_ended_is_left_over_when_its_stream_will_say_nothing_more(
    txn: Transaction, stream: Stream, expected: bool
) -> None:
    assert expiry.is_left_over(txn, stream, 1_000 + expiry.LEFT_OVER_MS) == expected
