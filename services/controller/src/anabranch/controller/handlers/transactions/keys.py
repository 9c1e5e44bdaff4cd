"""Transactions with a key: of each version of an application, one transaction is committed.

Begin creates the transaction first and then records in the application that it has the version. A
later caller that finds it there can therefore look up its state. If that transaction is neither
open nor committed, it was aborted or has expired, and another transaction takes the version. If two
callers begin the same version at once, the second aborts its own transaction and continues with the
first one's. If the application already has an answer, nothing is created.

Commit stores the outcome and the application's claim together or not at all.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from anabranch.common.contracts.subjects import (
    shard_of_subject,
    transaction_events,
    transaction_key,
)
from anabranch.common.contracts.transactions import (
    BeginTransaction,
    TransactionBegun,
    TransactionInfo,
    TransactionKey,
    TransactionQuery,
)
from anabranch.common.errors import (
    AnabranchError,
    Busy,
    TransactionNotFound,
    VersionPassed,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.eventsourcing.together import Decision, append_together
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain import application
from anabranch.controller.domain.application import (
    Application,
    ApplicationEvent,
    ApplicationRef,
    OpenDecision,
)
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.transaction import decide
from anabranch.controller.handlers.desk.desk import QueryDesk, meant_stream
from anabranch.controller.handlers.transactions.begin import open_transaction, prepared, resume
from anabranch.controller.handlers.transactions.lookup import (
    Decide,
    Found,
    find_at_head,
    found_ended,
)

CLAIMS_MAX = 5
COMMITS_MAX = 8
_NOT_YET = ""
"""Stands for a transaction that is created only if the version is free."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The version that a caller wants; `ref` names the application and the stream's incarnation."""

    ref: ApplicationRef
    version: int

    @property
    def subject(self) -> str:
        return transaction_key(self.ref.stream, self.ref.incarnation, self.ref.application)

    def of(self, transaction: str) -> TransactionQuery:
        """A query for a transaction of the same stream."""
        return TransactionQuery(
            scope=self.ref.stream.scope,
            stream=self.ref.stream.stream,
            incarnation=self.ref.incarnation,
            transaction_id=transaction,
        )


async def begin_with_key(
    desk: QueryDesk, query: BeginTransaction, key: TransactionKey
) -> TransactionBegun:
    """Find or create the transaction of that version.

    Raises VersionPassed, and as `begin`.
    """
    stream = (await meant_stream(desk, query, query.incarnation)).state
    ref = ApplicationRef(ref_of(stream), stream.incarnation, key.application)
    wanted = _Wanted(ref, key.version)
    known = await application_at_head(desk, wanted.subject)
    seen = application.open_version(known, ref, key.version, _NOT_YET)
    if (answer := await _answered(desk, wanted, seen)) is not None:
        return answer
    dead = seen.transaction_id if seen.answer == "open" else None
    # The stream may have another incarnation by now; the version belongs to the one seen above.
    query = query.model_copy(update={"incarnation": stream.incarnation})
    own = await open_transaction(desk, query)
    return await _claimed(desk, wanted, own, dead)


async def application_at_head(desk: QueryDesk, subject: str) -> Application:
    """The application with everything stored by now. Raises Corrupt, Unavailable."""
    await desk.mirror.reach_head(shard_of_subject(subject))
    loaded = desk.mirror.transactions.applications.get(subject)
    return Application() if loaded is None else loaded.state


async def _claimed(
    desk: QueryDesk, wanted: _Wanted, own: Found, dead: str | None
) -> TransactionBegun:
    """Let `own` have the version, unless another live transaction has it.

    `dead` is a transaction that is known to have been aborted or to be gone. If storing the claim
    has an unknown outcome, `own` stays, because it may have the version.
    """
    for _ in range(CLAIMS_MAX):
        try:
            decision, before = await _claim(desk, wanted, own.loaded.state.transaction_id, dead)
        except VersionPassed:
            await _give_up(desk, own.loaded.subject)
            raise
        if decision.transaction_id == own.loaded.state.transaction_id:
            if before.open_transaction not in (None, dead, decision.transaction_id):
                await _give_up(desk, _subject(wanted, before.open_transaction))
            return await prepared(desk, own)
        if (answer := await _answered(desk, wanted, decision)) is not None:
            await _give_up(desk, own.loaded.subject)
            return answer
        dead = decision.transaction_id
    raise Busy(
        "every attempt met a concurrent begin of the version",
        remedy="wait and try again",
        application=wanted.ref.application,
        version=wanted.version,
        attempts=CLAIMS_MAX,
    )


async def _claim(
    desk: QueryDesk, wanted: _Wanted, own: str, dead: str | None
) -> tuple[OpenDecision, Application]:
    """The decision, and the application before it. Raises VersionPassed."""
    made: list[tuple[OpenDecision, Application]] = []

    def claim(seen: Loaded[Application]) -> Sequence[ApplicationEvent]:
        if dead is None:
            found = application.open_version(seen.state, wanted.ref, wanted.version, own)
        else:
            found = application.replace_open(seen.state, wanted.ref, wanted.version, dead, own)
        made.append((found, seen.state))
        return found.events

    await desk.transactions.applications.transact(wanted.subject, claim)
    return made[-1]


async def _answered(
    desk: QueryDesk, wanted: _Wanted, decision: OpenDecision
) -> TransactionBegun | None:
    """The answer with the transaction that has the version; None if it is not alive."""
    if decision.answer == "new":
        return None
    about = wanted.of(decision.transaction_id)
    try:
        found = await find_at_head(desk, about)
    except TransactionNotFound:
        return _committed_long_ago(wanted, decision) if decision.answer == "committed" else None
    if found.state in (TransactionState.ABORTING, TransactionState.ABORTED):
        return None
    answer = await resume(desk, about)
    is_aborted = answer.transaction.state in (TransactionState.ABORTING, TransactionState.ABORTED)
    return None if is_aborted else answer


def _committed_long_ago(wanted: _Wanted, decision: OpenDecision) -> TransactionBegun:
    """The stream has forgotten the transaction's outcome, but the application remembers it."""
    key = TransactionKey(application=wanted.ref.application, version=wanted.version)
    return TransactionBegun(
        transaction=TransactionInfo(
            transaction_id=decision.transaction_id,
            state=TransactionState.COMMITTED,
            incarnation=wanted.ref.incarnation,
            stream_epoch=0,
            key=key,
        )
    )


def _subject(wanted: _Wanted, transaction: str) -> str:
    return transaction_events(wanted.ref.stream, wanted.ref.incarnation, transaction)


async def _give_up(desk: QueryDesk, subject: str) -> None:
    """Try to abort a transaction that can never be committed. If this fails, its lease expires."""
    work = desk.transactions
    now_ms = work.clock.now_ms()
    with suppress(AnabranchError):
        await work.transactions.transact(
            subject, lambda seen: decide.abort(seen.state, "replaced", now_ms)
        )


async def commit_with_key(
    desk: QueryDesk, query: TransactionQuery, found: Found, decide_commit: Decide
) -> Found:
    """Decide the outcome together with the application's claim.

    Raises VersionPassed, the errors of `decide_commit`, Busy, OutcomeUnknown, Unavailable.
    """
    work, transaction = desk.transactions, found.loaded.state
    key, subject = transaction.key, found.loaded.subject
    assert key is not None
    of = transaction_key(ref_of(found.stream), transaction.incarnation, key.application)
    for _ in range(COMMITS_MAX):
        seen = await work.transactions.load(subject)
        if seen.state.status is None:
            return await found_ended(desk, query)
        outcome = decide_commit(seen)
        if not outcome:
            return Found(found.stream, seen)
        app = await work.applications.load(of)
        try:
            claim = application.commit(app.state, key.version, transaction.transaction_id)
        except VersionPassed:
            if (await work.transactions.load(subject)).sequence == seen.sequence:
                raise
            continue  # the transaction ended between the loads, and the application moved on
        if not claim:
            continue
        with suppress(WrongExpectedSequence):
            # The outcome comes first: alone it does no harm, since the version leads to it.
            after, _ = await append_together(
                work.store,
                Decision(work.transactions, seen, outcome),
                Decision(work.applications, app, claim),
            )
            return Found(found.stream, after)
    raise Busy(
        "every attempt met a concurrent change of the transaction or its application",
        remedy="wait and try again",
        transaction=transaction.transaction_id,
        attempts=COMMITS_MAX,
    )
