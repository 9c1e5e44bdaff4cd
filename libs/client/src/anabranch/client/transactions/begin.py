"""Begins transactions, and resumes transactions that other processes began.

If a begin loses its reply, it is repeated; no client pings the first transaction, so its lease
expires. With a key, a begin gets or creates the version's transaction. A transaction that an
earlier attempt left open holds events that this attempt writes again: it is aborted first, and a
writer that still uses it raises TransactionEnded. A transaction with parts is kept, because its
commit names the valid parts.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, cast

from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import TransactionSettings, WriterSettings
from anabranch.client.transactions.calls import COMMIT_WAIT_MS, POLL_FIRST_S, POLL_LONGEST_S
from anabranch.client.transactions.fate import Fate
from anabranch.client.transactions.pings import Pings
from anabranch.client.transactions.short import ShortTransaction
from anabranch.client.transactions.submissions import Submissions
from anabranch.client.transactions.transaction import DONE, Role, Transaction
from anabranch.client.transactions.writer import Writing
from anabranch.client.wire.control import SegmentDirectory
from anabranch.client.writing.lane_writer import T
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.transactions import (
    BeginTransaction,
    TransactionBegun,
    TransactionKey,
)
from anabranch.common.errors import Busy, InvalidRequest, TransactionEnded
from anabranch.common.model.transaction import TransactionState
from anabranch.common.wire.codec import require_zstd

Key = TransactionKey | tuple[str, int]
"""An application and its version."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The transaction to begin; without a key, a new one."""

    key: TransactionKey | None = None
    parts: bool = False


def wanted(key: Key | None, parts: bool) -> Wanted:
    """The wish for a key and parts. Raises InvalidRequest for a malformed key."""
    if isinstance(key, tuple):
        try:
            key = TransactionKey(application=key[0], version=key[1])
        except (ValueError, IndexError) as error:
            raise InvalidRequest(
                "not a transaction key",
                remedy="give the application's name, of letters, digits, dots and hyphens, and its "
                "version from 0",
            ) from error
    return Wanted(key, parts)


class Openings:
    """The dependencies of one stream's transactions; `noting` as in `Role`."""

    def __init__(
        self,
        submissions: Submissions,
        *,
        directory: SegmentDirectory,
        runtime: Runtime,
        pings: Pings,
        noting: Callable[[], str],
    ) -> None:
        self.calls = submissions.shared.calls
        self.submissions = submissions
        self._directory = directory
        self._runtime = runtime
        self._pings = pings
        self.noting = noting

    async def begin(
        self,
        what: Wanted,
        settings: TransactionSettings,
        writer: WriterSettings,
        serializer: Serializer[T] | None,
    ) -> Transaction[T]:
        """Begin a transaction and open it for writing. Raises as `Transactions.begin`."""
        begun = await self._begun(what, settings)
        return await self._opened(begun, self._role(settings), writer, serializer)

    def entered(
        self,
        what: Wanted,
        settings: TransactionSettings,
        writer: WriterSettings,
        serializer: Serializer[T] | None,
    ) -> "Beginning[T]":
        """What begins a transaction if it is awaited; if it is entered, only when it must."""
        begin = partial(self.begin, what, settings, writer, serializer)
        if not settings.short or what != Wanted():
            return Beginning(begin)
        return Beginning(begin, partial(self._keep, settings, writer, serializer))

    async def _keep(
        self,
        settings: TransactionSettings,
        writer: WriterSettings,
        serializer: Serializer[T] | None,
    ) -> Transaction[T]:
        """A transaction that begins when it must. Raises as `Transactions.begin`, and CodecMissing,
        as far as this is known already."""
        if writer.compression is not None:
            require_zstd()

        async def begin() -> tuple[Fate, tuple[SegmentInStream, ...]]:
            begun = await self._begun(Wanted(), settings)
            return self._fate_of(begun, settings), begun.segments

        return ShortTransaction(
            self._role(settings),
            Writing(self._directory, self._runtime, writer),
            serializer,
            submissions=self.submissions,
            layout=await self.submissions.shared.layout.get(),
            begin=begin,
        )

    def _role(self, settings: TransactionSettings, *, owns: bool = True) -> Role:
        return Role(settings, owns, self.noting, self.submissions.shared.unmerged)

    def _fate_of(self, begun: TransactionBegun, settings: TransactionSettings) -> Fate:
        pings = self._pings if settings.auto_ping else None
        return Fate(begun.transaction, self.calls, pings)

    async def resume(
        self,
        transaction: str,
        settings: TransactionSettings,
        writer: WriterSettings,
        serializer: Serializer[T] | None,
    ) -> Transaction[T]:
        """Resume a transaction and open it for writing. Raises as `Transactions.resume`."""
        begun = await self.calls.resume(transaction)
        return await self._opened(begun, self._role(settings, owns=False), writer, serializer)

    async def _opened(
        self,
        begun: TransactionBegun,
        role: Role,
        writer: WriterSettings,
        serializer: Serializer[T] | None,
    ) -> Transaction[T]:
        fate = self._fate_of(begun, role.settings)
        writing = Writing(self._directory, self._runtime, writer)
        transaction = Transaction(fate, role, writing, serializer)
        try:
            await transaction.open(begun.segments)
        except BaseException:
            await transaction.close()
            raise
        return transaction

    async def _begun(self, what: Wanted, settings: TransactionSettings) -> TransactionBegun:
        calls, clock = self.calls, self._runtime.clock
        deadline_s, pause_s = calls.deadline(settings.begin_timeout_s), POLL_FIRST_S
        while True:
            query = BeginTransaction(
                **calls.names,
                lease_ms=settings.lease_ms,
                execution_ms_max=settings.execution_ms_max,
                writer=settings.writer,
                parts=what.parts,
                key=what.key,
            )
            begun = await calls.ask(
                "begin_transaction", query, TransactionBegun, deadline_s=deadline_s
            )
            if await self._is_ours(begun, what, settings):
                return begun
            if calls.time_is_up(deadline_s):
                raise Busy(
                    "an earlier transaction of the version is still open",
                    remedy="wait until it has ended, then begin again",
                    stream=str(calls.stream),
                    transaction=begun.transaction.transaction_id,
                )
            await clock.sleep(pause_s)
            pause_s = min(pause_s * 2, POLL_LONGEST_S)

    async def _is_ours(
        self, begun: TransactionBegun, what: Wanted, settings: TransactionSettings
    ) -> bool:
        """Whether to use this transaction; if not and it is open, abort it."""
        found = begun.transaction
        is_open = found.state is TransactionState.OPEN
        if begun.is_new or found.state in DONE:
            return True
        if is_open and found.has_parts and what.parts:
            return True
        if is_open:
            with suppress(TransactionEnded):  # it was just committed: ask again
                await self.calls.abort(
                    found.transaction_id, settings.abort_timeout_s, wait_ms=COMMIT_WAIT_MS
                )
        return False


class Beginning(Generic[T]):
    """The result of `transaction`, `begin` and `resume`: await it for a Transaction, or enter it.

    ``async with writer.transaction() as txn`` ends the transaction with the block, and begins it
    only if it must be long. Awaiting begins it at once, and the application commits or aborts::

        txn = await writer.transaction()
        txn.write(b"21.5", key="boiler")
        await txn.commit()
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[Transaction[T]]],
        keep: Callable[[], Awaitable[Transaction[T]]] | None = None,
    ) -> None:
        self._begin = begin
        self._keep = keep or begin
        self._begun: Transaction[T] | None = None

    def __await__(self) -> Generator[object, None, Transaction[T]]:
        return cast(Generator[object, None, Transaction[T]], self._begin().__await__())

    async def __aenter__(self) -> Transaction[T]:
        self._begun = await self._keep()
        return await self._begun.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._begun is not None
        await self._begun.__aexit__(kind, error, trace)
