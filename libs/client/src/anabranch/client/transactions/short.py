"""A transaction that is begun when it must be: until then its client keeps its events.

    kept ──commit──► one group ──stored──► COMMITTED
      │        │         └──no answer, cancelled──► state None, until another commit learns it
      │        └──several containers──► carried by the commit ──► COMMITTING ──► COMMITTED
      ├──abort, or the block is left by an error──► ABORTED: nothing was ever written
      └──flush, ping, a commit with a time, or too much to be carried──► long

A carried transaction gets an id by its commit, and a controller decides it (`carried.py`).
A long transaction is begun at a controller, has an id, and behaves as `Transaction` describes. The
kept events are written into it, in their order, and everything later goes there.

Calls that wait for anything have their turns, so that a flush and a commit never both act on the
kept events.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from anabranch.client.serializers import Serializer
from anabranch.client.transactions.committing import Commit
from anabranch.client.transactions.fate import Fate
from anabranch.client.transactions.kept import ArrowWrite, Kept, cost_of
from anabranch.client.transactions.layout import Layout
from anabranch.client.transactions.submissions import JoinedCommit, Submissions
from anabranch.client.transactions.transaction import Role, Transaction, being_committed
from anabranch.client.transactions.writer import Writing
from anabranch.client.writing.arrow_columns import ARROW_SIZE_BYTES_MIN, arrow_events
from anabranch.client.writing.columns import as_timestamps, bytes_of
from anabranch.client.writing.lane_writer import T
from anabranch.client.writing.routing import stored_key
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.transactions import (
    CommittedPart,
    TransactionInfo,
    TransactionPinged,
)
from anabranch.common.errors import AnabranchError
from anabranch.common.model.transaction import TransactionState
from anabranch.common.wire.requests import GROUP_SIZE_BYTES_MAX

BeginLong = Callable[[], Awaitable[tuple[Fate, tuple[SegmentInStream, ...]]]]
"""Begins a long transaction: its fate, and its segments."""


class ShortTransaction(Transaction[T]):
    """A `Transaction` that may never be begun. See the module.

    `id` is empty until it is long, or until its commit has carried its events. ::

        async with writer.transaction() as txn:
            txn.write(b"21.5", key="boiler")
    """

    def __init__(
        self,
        role: Role,
        writing: Writing,
        serializer: Serializer[T] | None,
        *,
        submissions: Submissions,
        layout: Layout,
        begin: BeginLong,
    ) -> None:
        info = TransactionInfo(
            transaction_id="",
            state=TransactionState.OPEN,
            incarnation=layout.incarnation,
            stream_epoch=layout.stream_epoch,
            writer=role.settings.writer,
            opened_ms=writing.runtime.clock.now_ms(),
        )
        super().__init__(Fate(info, submissions.shared.calls, None), role, writing, serializer)
        self._kept: Kept | None = Kept()
        self._submissions = submissions
        self._begin = begin
        self._commit: Commit | JoinedCommit | None = None
        """The commit whose outcome is unknown."""
        self._turn: asyncio.Future[None] | None = None
        self._fate.attach(self._fail)

    # --- writing --------------------------------------------------------------------------

    def write(self, event: T, key: str | None = None, timestamp_ms: int | None = None) -> None:
        """Take one event; never waits. Raises as `EventWriter.write`.

        ::

            txn.write(b"21.5", key="boiler")
        """
        kept = self._kept
        if kept is None:
            super().write(event, key, timestamp_ms)
            return
        data = (bytes_of(event, self._serializer),)
        stamps = None if timestamp_ms is None else as_timestamps([timestamp_ms])
        cost = cost_of(data, (key,))
        self._refuse_if_impossible(len(data[0]), cost)
        self._keep(kept, data, (key,), stamps, cost)

    def _take(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[str | None] | None,
        timestamps_ms: Sequence[int] | None,
    ) -> None:
        kept = self._kept
        if kept is None:
            super()._take(payloads, keys, timestamps_ms)
            return
        stamps = None if timestamps_ms is None else as_timestamps(timestamps_ms)
        all_keys = [None] * len(payloads) if keys is None else keys
        cost = cost_of(payloads, all_keys)
        self._refuse_unless_room_for(cost, max(map(len, payloads)))
        self._keep(kept, payloads, all_keys, stamps, cost)

    def _keep(
        self,
        kept: Kept,
        payloads: Sequence[bytes],
        keys: Sequence[str | None],
        stamps: Sequence[int] | None,
        cost: int,
    ) -> None:
        kept.add(payloads, keys, stamps, cost)
        self._room.used += cost
        if self._joined is not None:
            kept.spans = self._joined(kept.spans)

    def write_arrow(
        self,
        batch: Any,
        *,
        event: str = "event",
        key: str | None = None,
        timestamp_ms: str | int | None = None,
    ) -> None:
        """Take all rows of a pyarrow Table or RecordBatch, or none, as `EventWriter.write_arrow`.

        More than a few events make the transaction long. ::

            txn.write_arrow(table, event="reading", key="sensor")
        """
        kept = self._kept
        if kept is None:
            super().write_arrow(batch, event=event, key=key, timestamp_ms=timestamp_ms)
            return
        content = arrow_events(batch, event, key, timestamp_ms)
        if not len(content.events):
            return
        if content.cost < ARROW_SIZE_BYTES_MIN:
            self._take(*content.as_lists())
            return
        if content.keys is not None:
            for each in content.keys.unique().drop_null().to_pylist():
                stored_key(each)
        cost = content.cost
        self._refuse_unless_room_for(cost, content.largest)
        kept.add_columns(ArrowWrite(batch, event, key, timestamp_ms), cost)
        self._room.used += cost

    # --- waiting --------------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until the buffer has room. Makes the transaction long if a group cannot hold it.

        ::

            await txn.drain()
        """
        kept = self._kept
        if kept is not None and (kept.cost > GROUP_SIZE_BYTES_MAX or not self._room.has_room):
            await self._long()
        await super().drain()

    async def flush(self) -> None:
        """Make it long, and wait until everything written so far is durable.

        ::

            await txn.flush()
        """
        await self._long()
        await super().flush()

    def acknowledgement(self) -> Awaitable[None]:
        """As `EventWriter.acknowledgement`; awaiting it makes the transaction long.

        ::

            durable = txn.acknowledgement()
            await durable
        """
        return super().acknowledgement() if self._kept is None else _Later(self.flush)

    def unacknowledged(self) -> dict[str, list[bytes]]:
        """As `EventWriter.unacknowledged`. Events that are still kept have no segment, which is
        written as an empty name.

        ::

            lost = txn.unacknowledged()
        """
        kept = self._kept
        if kept is None or kept.is_empty:
            return super().unacknowledged()
        return {"": list(kept.payloads)}

    # --- outcomes -------------------------------------------------------------------------

    async def commit(
        self,
        wait: bool = True,  # as in `Transaction.commit`
        *,
        timestamp_ms: int | None = None,
        parts: Iterable[CommittedPart] | None = None,
    ) -> TransactionInfo:
        """Commit as `Transaction.commit`. If all events lie in one container, it returns COMMITTED
        in any case.

        If the outcome is unknown (OutcomeUnknown, or the call was cancelled), another `commit`
        within an hour asks again. ::

            await txn.commit()
        """
        if self._kept is not None and parts is None:
            await self._in_turn(partial(self._commit_kept, timestamp_ms, wait))
        if not self.is_done and (failure := self._fate.failure) is not None:
            raise failure
        return await super().commit(wait, timestamp_ms=timestamp_ms, parts=parts)

    async def _commit_kept(self, timestamp_ms: int | None, wait: bool) -> None:
        kept = self._kept
        if kept is None:
            return
        if self._commit is None:
            self._raise_failure()
        for commit in await self._ways(kept, timestamp_ms):
            if await self._is_committed(kept, commit, wait):
                return
        await self._become_long()

    async def _ways(self, kept: Kept, timestamp_ms: int | None) -> Sequence[Commit | JoinedCommit]:
        """The ways to commit without a begin, in the order in which they are tried."""
        if self._commit is not None:
            return (self._commit,)
        if timestamp_ms is not None or kept.has_columns:
            return ()
        submissions, shared = self._submissions, self._submissions.shared
        carried = submissions.carried(kept, self._settings, self._role.settings.writer)
        if await shared.unmerged.any_left(shared.calls):
            return (carried,)
        return (submissions.short(kept, self._settings), carried)

    async def _is_committed(self, kept: Kept, commit: Commit | JoinedCommit, wait: bool) -> bool:
        """Commit this way; False: nothing is stored, and it takes another one. Meanwhile, and
        afterwards if the outcome is unknown, it takes no more events."""
        if not self._ended:
            self._failure = being_committed(self.stream, self.id)
        info: TransactionInfo | None = None
        try:
            if kept.is_empty:
                is_committed = True
            elif isinstance(commit, JoinedCommit):
                info = await commit.perform(wait=wait)
                is_committed = info is not None
            else:
                is_committed = await commit.perform()
        except BaseException as error:
            if kept.spans is not None and isinstance(error, AnabranchError):
                kept.spans.failed(error)
            self._note_attempt(commit)
            raise
        self._note_attempt(commit)
        if is_committed:
            if kept.spans is not None:
                kept.spans.acknowledged()
            self._end_as(TransactionState.COMMITTED, info)
        return is_committed

    def _note_attempt(self, commit: Commit | JoinedCommit) -> None:
        is_unclear = commit.is_unclear
        self._commit = commit if is_unclear else None
        self._fate.state = None if is_unclear else TransactionState.OPEN
        if not is_unclear and not self._ended:
            self._failure = None

    def _end_as(self, state: TransactionState, carried: TransactionInfo | None = None) -> None:
        """The outcome of a transaction that was never begun; `carried`: its description."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._room.release(kept.cost)
        now_ms, info = self._runtime.clock.now_ms(), self.info
        changes = {"state": state, "ended_ms": now_ms, "age_ms": max(0, now_ms - info.opened_ms)}
        if carried is not None:
            self._fate.transaction_id = carried.transaction_id
        self._fate.learn(carried or info.model_copy(update=changes))
        self._lanes.refusal = self._fate.failure or self._lanes.refusal

    async def abort(self) -> TransactionInfo:
        """Discard its events, for good. Raises as `Transaction.abort`, and OutcomeUnknown after a
        short commit with an unknown outcome.

        ::

            await txn.abort()
        """
        self._abort_asked = True
        if self._kept is not None:
            await self._in_turn(self._drop_kept)
        if self.id:
            return await super().abort()
        if self.is_done and (failure := self._fate.failure) is not None:
            raise failure
        return self.info

    async def _drop_kept(self) -> None:
        self._raise_if_unknown()
        if self._kept is not None:
            self._end_as(TransactionState.ABORTED)

    async def close(self) -> None:
        """Stop writing, without an outcome, as `Transaction.close`; repeatable. Events that are
        still kept are dropped: the transaction is ABORTED, unless a commit was under way."""
        if self._kept is not None and self._commit is None and self._turn is None:
            self._end_as(TransactionState.ABORTED)
        await super().close()

    async def wait(self, timeout_s: float | None = None) -> TransactionInfo:
        """Wait as `Transaction.wait`. A transaction without an outcome becomes long.

        ::

            await txn.wait(timeout_s=30)
        """
        if self._kept is not None:
            await self._in_turn(self._become_long)
        return await super().wait(timeout_s) if self.id else self._outcome()

    # --- while it is open -----------------------------------------------------------------

    async def ping(self, lease_ms: int | None = None) -> TransactionPinged:
        """Make it long, and renew its lease.

        ::

            await txn.ping(lease_ms=60_000)
        """
        await self._long()
        return await super().ping(lease_ms)

    async def describe(self) -> TransactionInfo:
        """Its present description; makes it long if it has no outcome.

        ::

            info = await txn.describe()
        """
        if self._kept is not None:
            await self._in_turn(self._become_long)
        return await super().describe() if self.id else self.info

    # --- becoming long --------------------------------------------------------------------

    async def _long(self) -> None:
        """Make it long. Raises TransactionEnded if it ended before."""
        if self._kept is not None:
            await self._in_turn(self._become_long)
        failure = self._fate.failure
        if not self.id and failure is not None:
            raise failure

    def _outcome(self) -> TransactionInfo:
        """The outcome of a short one. Raises TransactionEnded if it is aborted."""
        failure = self._fate.failure
        if not self.is_done and failure is not None:
            raise failure
        return self.info

    async def _become_long(self) -> None:
        self._raise_if_unknown()
        kept = self._kept
        if kept is None:
            return
        self._raise_failure()
        short = self._fate
        fate, segments = await self._begin()
        short.detach(self._fail)
        self._fate = fate
        try:
            await self.open(segments)
            self._raise_failure()  # it may have been closed meanwhile
        except BaseException:
            fate.keep_alive_no_more()
            fate.detach(self._fail)
            self._fate = short
            short.attach(self._fail)
            if self._ended:
                await super().close()
            raise
        self._pour(kept)

    def _pour(self, kept: Kept) -> None:
        """Write all kept events into the segments, in one step of the event loop."""
        self._kept = None
        self._room.used -= kept.cost
        for piece in kept.pieces():
            if isinstance(piece, ArrowWrite):
                batch, event, key, timestamp_ms = piece
                super().write_arrow(batch, event=event, key=key, timestamp_ms=timestamp_ms)
            else:
                super()._take(*piece)
        if kept.spans is not None:
            kept.spans.acknowledged()

    def _raise_if_unknown(self) -> None:
        if self._commit is not None:
            raise self._commit.unknown("a commit was under way")

    async def _in_turn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while no other call does."""
        while self._turn is not None:
            await asyncio.wait({self._turn})
        self._turn = turn = self._loop.create_future()
        try:
            await work()
        finally:
            self._turn = None
            turn.set_result(None)


class _Later:
    """Work that begins when it is awaited."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, None, None]:
        return self._work().__await__()
