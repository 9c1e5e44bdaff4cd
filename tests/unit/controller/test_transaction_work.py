"""Operators see what transactions ask of controllers, and what became of them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.operation_queries import ListWork, Work, WorkList
from anabranch.common.contracts.place import Place
from anabranch.common.contracts.subjects import shard_of_subject, transaction_events
from anabranch.common.contracts.transactions import BeginTransaction
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import ScopeName, StreamName, StreamRef, segment_id
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.model.transaction import TransactionState, transaction_id
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.runtime.metrics import silent_metrics
from anabranch.common.workflow.progress import ProgressBoard, StepProgress
from anabranch.controller.domain.kinds import STREAMS, TRANSACTIONS, nothing_seen, pending_work
from anabranch.controller.domain.stream.history import EpochRecord
from anabranch.controller.domain.stream.intents import CommitPlan, Intent, IntentKind
from anabranch.controller.domain.stream.state import Stream, TransactionsSeen
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.domain.transaction.events import TransactionAborting
from anabranch.controller.domain.transaction.invariants import TRANSACTION
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.desk.desk import QueryDesk
from anabranch.controller.handlers.queries.work import list_work
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.notices import FoldListener
from anabranch.controller.projections.quarantine import Fold
from kit.fed_mirror import fed_mirror

REF = StreamRef(ScopeName("s"), StreamName("x"))
OPEN = Transaction(ref=REF, incarnation=1, transaction_id="t", status=TransactionState.OPEN)
SEGMENTS = (SegmentRange(segment_id(0, 0), KeyRange(0.0, 1.0)),)
STREAM = Stream(
    ref=REF,
    incarnation=1,
    status=StreamState.ACTIVE,
    segments=SEGMENTS,
    epochs=(EpochRecord(0, 0, 1, SEGMENTS, ()),),
)


@dataclass
class Desk:
    """As much of a `QueryDesk` as the list of work asks for."""

    mirror: Mirror
    progress: Callable[[], Sequence[StepProgress]]
    controller_id: str = "me"


def test_an_abort_is_work_until_the_segments_are_deleted() -> None:
    aborting = replace(OPEN, status=TransactionState.ABORTING, abort_reason="asked")

    found = pending_work(TRANSACTIONS, aborting, nothing_seen)

    assert found is not None
    assert found.place == Place("s", stream="x", transaction="t")
    assert (found.wish.kind, found.step) == ("abort", "delete_segments")
    assert pending_work(TRANSACTIONS, OPEN, nothing_seen) is None
    aborted = replace(aborting, status=TransactionState.ABORTED)
    assert pending_work(TRANSACTIONS, aborted, nothing_seen) is None


def test_a_batch_of_commits_is_work_with_its_age() -> None:
    batch = Intent(IntentKind.COMMIT, 5, 700, (), commit=CommitPlan(0, ("t",), (0,)))

    found = pending_work(STREAMS, replace(STREAM, intents=(batch,)), nothing_seen)

    assert found is not None
    assert (found.wish.kind, found.step, found.wish.since_ms) == (
        "commit",
        "commit_transactions",
        700,
    )


async def test_work_on_a_transaction_is_listed_behind_that_of_its_stream() -> None:
    store = InMemoryEventStore()
    mirror = fed_mirror(store)
    transactions = Repository(store, TRANSACTION, SeededIds(1))
    name = transaction_id(1, bytes(10))
    subject = transaction_events(REF, 1, name)
    asked = BeginTransaction(scope="s", stream="x", lease_ms=5_000, writer="w")
    opened = decide.opened(asked, Opening(name, 1, 0, 1))
    aborting = TransactionAborting(reason="asked", at_ms=2)
    loaded = await transactions.append(Loaded(subject, Transaction()), [opened])
    stored = await transactions.append(loaded, [aborting])
    shard = shard_of_subject(subject)
    await mirror.at_least(ReadToken(shard=shard, sequence=stored.sequence))
    tried = ProgressBoard(SystemClock())
    tried.begin(subject, "delete_segments")
    desk = cast(QueryDesk, Desk(mirror, tried.all))

    async def listed(scope: str, token: str = "") -> Sequence[Work]:
        found = await list_work(desk, ListWork(scope=scope, only_here=True, page_token=token))
        assert isinstance(found, WorkList)
        return found.work

    (work,) = await listed("s")

    assert (work.stream, work.transaction, work.kind) == ("x", name, "abort")
    assert (work.controller, work.bucket) == ("me", shard)
    assert await listed("other") == ()
    assert await listed("s", f"s/x/{name}") == ()


def test_transactions_that_wait_for_a_batch_are_work_of_their_stream() -> None:
    found = pending_work(STREAMS, STREAM, lambda _stream: TransactionsSeen(to_commit=True))

    assert found is not None
    assert found.step == "start_commit"
    assert pending_work(STREAMS, STREAM, nothing_seen) is None


def test_outcomes_are_counted_from_the_moment_the_mirror_is_live() -> None:
    told: list[tuple[str, str]] = []
    listener = FoldListener(
        lambda _: None, on_outcome=lambda subject, outcome: told.append((subject, outcome))
    )
    point = ReadToken(shard=1, sequence=1)

    listener(Fold("before", point, outcome="committed"))
    listener.go_live()
    listener(Fold("a", point, outcome="committed"))
    listener(Fold("b", point, outcome="expired"))
    listener(Fold("c", point))

    assert told == [("a", "committed"), ("b", "expired")]


def test_an_outcome_is_why_it_is_aborted_or_that_it_is_committed() -> None:
    assert OPEN.outcome == ""
    assert replace(OPEN, status=TransactionState.COMMITTING).outcome == "committed"
    aborting = replace(OPEN, status=TransactionState.ABORTING, abort_reason="expired")
    assert aborting.outcome == "expired"


def test_the_metrics_count_outcomes() -> None:
    metrics = ControllerMetrics(silent_metrics(), SystemClock())
    for outcome in ("committed", "expired", "committed"):
        metrics.decided(outcome)

    assert metrics.transactions == Counter({("committed",): 2, ("expired",): 1})
