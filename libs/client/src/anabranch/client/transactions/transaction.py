"""A transaction of a stream: its events become visible together at the commit, or never.

    open ──flush──► commit sent ──reply──► COMMITTING ──merged──► COMMITTED
      │                  └──no reply──► state None, until a later call learns the outcome
      └──abort, or the lease expires──► ABORTING ──► ABORTED

The process that began the transaction ends it: leaving its block commits it, or aborts it on an
error. A process that resumed it only adds events: leaving the block flushes. The controller decides
the outcome once and repeats it to every later request, so that a client asks again after a lost
reply.
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
from anabranch.client.transactions.unmerged import Unmerged
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
    Remedy,
    TransactionEnded,
    VersionPassed,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.model.transaction import TransactionState

DONE = (TransactionState.COMMITTING, TransactionState.COMMITTED)


@dataclass(frozen=True, slots=True)
class Role:
    """This process's part in the transaction. With `owns`, leaving its block decides the outcome;
    `noting` returns the writer id, in hexadecimal digits, under which its commit notes a time.
    `unmerged` learns of its commit."""

    settings: TransactionSettings
    owns: bool
    noting: Callable[[], str]
    unmerged: Unmerged


class Transaction(TransactionWriter[T]):
    """Writes to a transaction as to a stream: an async context manager. See the module.

    Made by `EventWriter.transaction`, `Transactions.begin` and `Transactions.resume`::

        async with writer.transaction() as txn:
            txn.write(b"21.5", key="boiler")
            txn.write(b"4", key="door")

    Once the transaction has an outcome, from any process, writing raises TransactionEnded.
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
            self._failure = _write_to_a_part(fate.calls.stream, self.transaction_id)
            self._lanes.refusal = self._failure

    # --- description ------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """32 hexadecimal digits, by which any process can resume it; empty for one that was entered
        and is not begun."""
        return self.transaction_id

    @property
    def state(self) -> TransactionState | None:
        """The last known state. None: a commit was sent and its outcome is not known here;
        `describe` asks for it."""
        return self._fate.state

    @property
    def info(self) -> TransactionInfo:
        """The last known description, without asking."""
        return self._fate.info

    @property
    def is_done(self) -> bool:
        """Whether it is committed, or irrevocably about to be. A keyed begin for a version that was
        committed before returns such a transaction: write nothing to it."""
        return self.state in DONE

    # --- life -----------------------------------------------------------------------------

    async def open(self, segments: tuple[SegmentInStream, ...]) -> None:
        """Write to these segments from now on; `begin` calls it. Raises CodecMissing."""
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
                    remedy=Remedy(api="name the valid parts: `txn.commit(parts=[...])`"),
                    transaction=self.id,
                )
            elif not self.has_parts:
                await self.commit()
        except BaseException:
            await self._give_up()
            raise

    async def _give_up(self) -> None:
        """Abort if this process decides the outcome; if no reply comes, the lease expires."""
        if not self._role.owns or self._commit_asked or self._fate.failure is not None:
            return
        with suppress(AnabranchError):
            await self.abort()

    async def close(self) -> None:
        """Stop writing and pinging, without an outcome; repeatable. Another process may resume the
        transaction; otherwise its lease expires."""
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
        """Flush, then make its events part of the stream, for good. Returns it as COMMITTED.

        With `wait`, it returns when readers see the events. Without, or if that takes longer than
        the settings' `commit_timeout_s`, it returns COMMITTING, which is just as irrevocable: see
        `wait`. `timestamp_ms`: every later write of the writer is of that Unix time or later, as in
        `EventWriter.note_time`. `parts`: for a transaction with parts, the reports of the valid
        parts, in reading order.

        Idempotent; for a version that was committed before it returns that outcome. Raises
        TransactionEnded (it is aborted), PartMismatch (it stays open), VersionPassed, the writer's
        failure, InvalidRequest, and OutcomeUnknown (fields: transaction) if no reply comes in time:
        `state` is then None until `describe` or another commit learns the outcome.

        ::

            txn = await writer.transaction()
            txn.write(b"21.5", key="boiler")
            await txn.commit(timestamp_ms=1_700_000_000_000)
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
                remedy=Remedy(
                    "name the parts if the transaction has some, and none otherwise",
                    api="`txn.commit(parts=[...])` if it has parts, `txn.commit()` otherwise",
                ),
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
        """Raises TransactionEnded if another process committed before everything written here was
        durable."""
        await self._acknowledged(self._lanes.appenders)

    async def _flush_for_good(self) -> None:
        """Refuse writes between the flush and the commit; if the flush fails or is cancelled,
        writing may continue."""
        if (failure := self._fate.failure) is not None:
            raise failure
        durable = self._acknowledged(self._lanes.appenders)
        refusal = being_committed(self._fate.calls.stream, self.id)
        self._failure = self._failure or refusal
        try:
            await durable
        except BaseException:
            if self._failure is refusal:
                self._failure = None
            raise
        await self._stop()

    async def _ask_to_commit(self, query: CommitTransaction, deadline_s: float) -> None:
        fate, before = self._fate, self._role.unmerged.decided()
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
        finally:
            self._role.unmerged.returned(self.id, fate.state, before)

    async def wait(self, timeout_s: float | None = None) -> TransactionInfo:
        """Wait until any process has committed it. Returns it as COMMITTED, or as COMMITTING at the
        timeout.

        With `timeout_s` None, the settings' `commit_timeout_s` applies. Raises TransactionEnded (it
        is aborted), OutcomeUnknown (it is still open), TransactionNotFound, StreamNotFound,
        Unavailable.

        ::

            await txn.commit(wait=False)
            await txn.wait(timeout_s=30)
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
            if fate.state is TransactionState.COMMITTING:  # it is irrevocable
                return fate.info
            raise

    async def abort(self) -> TransactionInfo:
        """Discard all of its events, for good. Returns it as ABORTING, or as ABORTED when they are
        removed.

        Idempotent. Raises TransactionEnded (it is committed), TransactionNotFound, Unavailable (no
        reply within the settings' `abort_timeout_s`: abort again, or let its lease expire).

        ::

            await txn.abort()
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
        """Renew the lease. The client pings by itself, unless the settings disable `auto_ping`.

        With `lease_ms` None, the lease is as long as at the beginning. The answer's `refusal` tells
        when the transaction may live no longer. Raises TransactionEnded, TransactionNotFound,
        InvalidRequest, Unavailable.

        ::

            await txn.ping(lease_ms=60_000)
        """
        try:
            return await self._fate.calls.ping(self.id, lease_ms)
        except TransactionEnded as error:
            self._fate.learn_ended(error)
            raise

    async def describe(self) -> TransactionInfo:
        """Its present description. Raises TransactionNotFound, StreamNotFound, Unavailable.

        ::

            info = await txn.describe()
        """
        return self._fate.learn(await self._fate.calls.describe(self.id))

    def part(self, part_id: str | None = None) -> TransactionPart[T]:
        """A part to write; enter it with `async with`. With `part_id` None, the part is new.

        Raises InvalidRequest if the id is malformed or the transaction has no parts.

        ::

            async with txn.part() as part:
                part.write(b"21.5", key="boiler")
            await txn.commit(parts=[await part.report()])
        """
        if not self.has_parts:
            raise InvalidRequest(
                "the transaction has no parts",
                remedy=Remedy(
                    "begin a transaction with parts",
                    api="begin it with `client.transactions(...).begin(parts=True)`",
                ),
                transaction=self.id,
            )  # fmt: skip
        drawn = self._runtime.ids.new_id() if part_id is None else part_id
        return TransactionPart(drawn, self._fate, self._writing, self._serializer)


def _write_to_a_part(stream: StreamRef, transaction_id: str) -> InvalidRequest:
    return InvalidRequest(
        "the transaction has parts; write to a part",
        remedy=Remedy(
            api="use `async with txn.part() as part`",
            http=f"`POST /v1/scopes/{stream.scope}/streams/{stream.stream}/transactions/"
            f"{transaction_id}/parts` creates a part for the events",
            command="add `--part new` for a new part, or `--part` and its id",
        ),
        transaction=transaction_id,
    )


def being_committed(stream: StreamRef, transaction_id: str) -> TransactionEnded:
    """The error of writing after a commit was requested."""
    return TransactionEnded(
        "a commit of the transaction was already requested",
        stream=str(stream),
        transaction=transaction_id,
        state="unknown",
    )
