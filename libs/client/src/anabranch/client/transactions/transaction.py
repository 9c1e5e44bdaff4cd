"""A transaction of a stream: its events are seen together when it is committed, or never.

    open ──flush──► commit asked for ──answered──► COMMITTING ──merged──► COMMITTED
      │                    └──not answered──► state None, until somebody is told
      └──abort, or its lease is over──► ABORTING ──► ABORTED

Who began it ends it: leaving its block commits it, or aborts it on an error. Who resumed it only
adds to it: leaving the block flushes. The outcome is decided by the controller, once; asking again
gives the same answer, so that a lost answer is asked for again.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from anabranch.client.serializers import Serializer
from anabranch.client.settings import TransactionSettings
from anabranch.client.transactions.calls import COMMIT_WAIT_MS
from anabranch.client.transactions.fate import Fate
from anabranch.client.transactions.part import TransactionPart
from anabranch.client.transactions.writer import TransactionWriter, Writing
from anabranch.client.writing.lane_writer import T
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.transactions import (
    CommittedPart,
    CommitTransaction,
    TransactionInfo,
    TransactionKey,
    TransactionPinged,
)
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    PartMismatch,
    TransactionEnded,
    VersionPassed,
)
from anabranch.common.model.transaction import TransactionState

DONE = (TransactionState.COMMITTING, TransactionState.COMMITTED)


@dataclass(frozen=True, slots=True)
class Role:
    """Whose the transaction is here. `owns`: leaving its block decides it; `noting` gives the
    writer id, in hexadecimal digits, under which its commit notes a time."""

    settings: TransactionSettings
    owns: bool
    noting: Callable[[], str]


class Transaction(TransactionWriter[T]):
    """See the module. An async context manager; written to as a plain writer is.

    Made by `EventWriter.transaction`, `Transactions.begin` and `Transactions.resume`::

        async with writer.transaction() as txn:
            txn.write(b"21.5", key="boiler")
            txn.write(b"4", key="door")

    Writing raises TransactionEnded once it has an outcome, whoever decided that.
    """

    def __init__(
        self, fate: Fate, role: Role, writing: Writing, serializer: Serializer[T] | None = None
    ) -> None:
        super().__init__(fate, writing, serializer)
        self.has_parts = fate.info.has_parts
        self.key: TransactionKey | None = fate.info.key
        self._writing = writing
        self._role = role
        self._commit_asked = False
        self._abort_asked = False
        if self.has_parts:
            self._failure = _write_to_a_part(self.transaction_id)
            self._lanes.refusal = self._failure

    # --- what it is -----------------------------------------------------------------------

    @property
    def id(self) -> str:
        """32 hexadecimal digits, by which any process can go on with it."""
        return self.transaction_id

    @property
    def state(self) -> TransactionState | None:
        """As last heard. None: a commit was asked for, and whether it took place is not known
        here; `describe` asks."""
        return self._fate.state

    @property
    def info(self) -> TransactionInfo:
        """What was last heard of it, without asking."""
        return self._fate.info

    @property
    def is_done(self) -> bool:
        """Whether it is committed, or irrevocably about to be. True of the transaction that a
        keyed begin gives for a version which was committed before: write nothing then."""
        return self.state in DONE

    # --- life -----------------------------------------------------------------------------

    async def open(self, segments: tuple[SegmentInStream, ...]) -> None:
        """Write to these segments from now on; called by who makes it. Raises CodecMissing."""
        if segments and not self.has_parts:
            await self._open_lanes(segments)
            return
        self._runtime.open_parts.add(self)
        if (failure := self._fate.failure) is not None:
            self._lanes.refusal = failure
        self._fate.attach(self._fail)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self._leave()
            else:
                await self._give_up()
        finally:
            await self.close()

    async def _leave(self) -> None:
        if self._abort_asked:
            return
        if self.is_done:
            await self._nothing_was_lost()
            return
        try:
            if not self._role.owns:
                await self.flush()
            elif self.has_parts and not self._commit_asked:
                raise InvalidRequest(
                    "a transaction with parts was left without a commit and aborts",
                    remedy="name the valid parts: `await txn.commit(parts=[…])`",
                    transaction=self.id,
                )
            elif not self.has_parts:
                await self.commit()
        except BaseException:
            await self._give_up()
            raise

    async def _give_up(self) -> None:
        """Abort it if that is ours to decide; if nobody answers, its lease does that."""
        if not self._role.owns or self._commit_asked or self._fate.failure is not None:
            return
        with suppress(AnabranchError):
            await self.abort()

    async def close(self) -> None:
        """Stop writing and pinging, without an outcome; repeatable. Others may go on with it, or
        its lease ends it."""
        self._fate.keep_alive_no_more()
        await super().close()

    # --- outcomes -------------------------------------------------------------------------

    async def commit(
        self,
        wait: bool = True,  # reads well: commit(wait=False)
        *,
        timestamp_ms: int | None = None,
        parts: Iterable[CommittedPart] | None = None,
    ) -> TransactionInfo:
        """Flush, then make its events part of the stream, for good → COMMITTED.

        `wait`: until readers see them; if that takes longer than the settings' `commit_timeout_s`,
        or without `wait`, the answer is COMMITTING, which is as irrevocable: see `wait`.
        `timestamp_ms`: everything that the writer writes from now on is of that Unix time or later,
        as in `EventWriter.note_time`. `parts`: of a transaction with parts the reports of those
        that count, in the order in which they shall be read.

        Idempotent; a version that was committed before answers with its outcome. Raises
        TransactionEnded (it is aborted), PartMismatch (it stays open), VersionPassed, the writer's
        failure, InvalidRequest, and OutcomeUnknown (fields: transaction) when nobody answered in
        time: then `state` is None until `describe`, or another commit, tells.
        """
        deadline_s = self._fate.calls.deadline(self._role.settings.commit_timeout_s)
        if self.is_done:
            await self._nothing_was_lost()
        else:
            query = self._commit_query(wait, timestamp_ms, parts)
            await self._flush_for_good()
            await self._ask_to_commit(query, deadline_s)
        if not wait or self.state is TransactionState.COMMITTED:
            return self.info
        return await self._until_committed(deadline_s)

    def _commit_query(
        self, wait: bool, timestamp_ms: int | None, parts: Iterable[CommittedPart] | None
    ) -> CommitTransaction:
        if self.has_parts == (parts is None):
            raise InvalidRequest(
                "a commit needs the reports of parts if, and only if, the transaction has parts",
                remedy="`await txn.commit(parts=[…])` after `transactions.begin(parts=True)`",
                transaction=self.id,
            )
        try:
            return CommitTransaction(
                **self._fate.calls.names,
                transaction_id=self.id,
                incarnation=self.info.incarnation,
                parts=tuple(
                    CommittedPart(part=each.part, lengths=each.lengths) for each in parts or ()
                ),
                writer_id="" if timestamp_ms is None else self._role.noting(),
                timestamp_ms=timestamp_ms,
                wait_ms=COMMIT_WAIT_MS if wait else 0,
            )
        except ValueError as error:
            raise InvalidRequest(
                "a commit's time must lie between 1970 and 2^53 ms, and its parts be not too many",
                timestamp_ms=timestamp_ms,
            ) from error

    async def _nothing_was_lost(self) -> None:
        """Raises TransactionEnded if somebody else committed before all that was written here was
        durable."""
        await self._acknowledged(self._lanes.appenders)

    async def _flush_for_good(self) -> None:
        """Nothing may be written between the flush and the question; a flush that fails or is
        cancelled lets writing go on."""
        if (failure := self._fate.failure) is not None:
            raise failure
        durable = self._acknowledged(self._lanes.appenders)
        refusal = _being_committed(self.id)
        self._failure = self._failure or refusal
        try:
            await durable
        except BaseException:
            if self._failure is refusal:
                self._failure = None
            raise
        await self._stop()

    async def _ask_to_commit(self, query: CommitTransaction, deadline_s: float) -> None:
        fate = self._fate
        self._commit_asked, fate.state = True, None
        try:
            fate.learn(await fate.calls.commit(query, deadline_s))
        except TransactionEnded as error:
            fate.learn_ended(error)
            raise
        except (PartMismatch, VersionPassed, InvalidRequest):
            self._commit_asked = False
            fate.learn_state(TransactionState.OPEN)
            raise

    async def wait(self, timeout_s: float | None = None) -> TransactionInfo:
        """Wait until it is committed, by whomever → COMMITTED; COMMITTING if that takes longer.

        `timeout_s` None: the settings' `commit_timeout_s`. Raises TransactionEnded (it is aborted),
        OutcomeUnknown (it is still open), TransactionNotFound, StreamNotFound, Unavailable.
        """
        limit_s = self._role.settings.commit_timeout_s if timeout_s is None else timeout_s
        return await self._until_committed(self._fate.calls.deadline(limit_s))

    async def _until_committed(self, deadline_s: float) -> TransactionInfo:
        fate = self._fate
        try:
            return fate.learn(await fate.calls.until_ended(self.id, deadline_s))
        except TransactionEnded as error:
            fate.learn_ended(error)
            raise
        except AnabranchError:
            if fate.state is TransactionState.COMMITTING:  # that is known for good
                return fate.info
            raise

    async def abort(self) -> TransactionInfo:
        """Give up all of its events, for good → ABORTING, or ABORTED when they are removed.

        Idempotent. Raises TransactionEnded (it is committed), TransactionNotFound, Unavailable
        (nobody answered in the settings' `abort_timeout_s`: abort again, or leave it to its lease).
        """
        self._abort_asked = True
        calls, limit_s = self._fate.calls, self._role.settings.abort_timeout_s
        try:
            return self._fate.learn(await calls.abort(self.id, limit_s))
        except TransactionEnded as error:
            self._fate.learn_ended(error)
            raise

    # --- while it is open -----------------------------------------------------------------

    async def ping(self, lease_ms: int | None = None) -> TransactionPinged:
        """Keep it alive for another lease; done by itself, unless the settings say `auto_ping` no.

        `lease_ms` None: as it was begun with. `refusal` of the answer says when it may live no
        longer. Raises TransactionEnded, TransactionNotFound, InvalidRequest, Unavailable.
        """
        try:
            return await self._fate.calls.ping(self.id, lease_ms)
        except TransactionEnded as error:
            self._fate.learn_ended(error)
            raise

    async def describe(self) -> TransactionInfo:
        """As it stands now. Raises TransactionNotFound, StreamNotFound, Unavailable."""
        return self._fate.learn(await self._fate.calls.describe(self.id))

    def part(self, part_id: str | None = None) -> TransactionPart[T]:
        """A part to write, to be entered with `async with`; `part_id` None: a new one.

        Raises InvalidRequest: that is no id, or the transaction has no parts.
        """
        if not self.has_parts:
            raise InvalidRequest(
                "the transaction has no parts",
                remedy="begin it with `transactions.begin(parts=True)`", transaction=self.id,
            )  # fmt: skip
        drawn = self._runtime.ids.new_id() if part_id is None else part_id
        return TransactionPart(drawn, self._fate, self._writing, self._serializer)


def _write_to_a_part(transaction_id: str) -> InvalidRequest:
    return InvalidRequest(
        "the transaction has parts; write to a part",
        remedy="use `async with txn.part() as part`", transaction=transaction_id,
    )  # fmt: skip


def _being_committed(transaction_id: str) -> TransactionEnded:
    return TransactionEnded(
        "a commit of the transaction was already requested",
        transaction=transaction_id,
        state="unknown",
    )
