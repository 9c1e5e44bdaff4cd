"""`client.transactions(stream)`: begins the transactions of a stream, and asks about them.

Any process that knows a transaction's id may write to it, ping it and end it. All raise
StreamNotFound, ScopeNotFound, and Unavailable when nobody answers in time; those that name a
transaction TransactionNotFound (it never was, or its outcome is forgotten) and InvalidRequest.
"""

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import overload

from anabranch.client.serializers import Serializer
from anabranch.client.settings import (
    ABORT_TIMEOUT_S,
    COMMIT_TIMEOUT_S,
    TransactionSettings,
    WriterSettings,
)
from anabranch.client.transactions.begin import Beginning, Key, Openings, wanted
from anabranch.client.transactions.calls import COMMIT_WAIT_MS, refuse_unless_committed
from anabranch.client.writing.lane_writer import T
from anabranch.common.contracts.queries import PAGE_SIZE_MAX
from anabranch.common.contracts.transactions import (
    PINGS_MAX,
    ApplicationDescription,
    CommittedPart,
    CommitTransaction,
    DescribeApplication,
    ForgetApplication,
    ListTransactions,
    PingTransaction,
    PingTransactions,
    TransactionInfo,
    TransactionList,
    TransactionPinged,
    TransactionsPinged,
)
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.transaction import TransactionState, check_id


class Transactions:
    """See the module."""

    def __init__(self, openings: Openings) -> None:
        self._openings = openings
        self._calls = openings.calls
        self.stream = openings.calls.stream

    # --- to write -------------------------------------------------------------------------

    @overload
    def begin(
        self,
        settings: TransactionSettings | None = None,
        *,
        key: Key | None = None,
        parts: bool = False,
        writer_settings: WriterSettings | None = None,
    ) -> Beginning: ...

    @overload
    def begin(
        self,
        settings: TransactionSettings | None = None,
        *,
        key: Key | None = None,
        parts: bool = False,
        writer_settings: WriterSettings | None = None,
        serializer: Serializer[T],
    ) -> Beginning[T]: ...

    def begin(
        self,
        settings: TransactionSettings | None = None,
        *,
        key: Key | None = None,
        parts: bool = False,
        writer_settings: WriterSettings | None = None,
        serializer: Serializer[T] | None = None,
    ) -> Beginning[T]:
        """Begin a transaction: ``async with transactions.begin() as txn``, or await it.

        `key`: (application, version), as a tuple or TransactionKey: of a version only one
        transaction is ever committed, and versions are committed in order. If that version was
        committed before, the answer is its transaction, which `is_done`; one that an earlier
        attempt left open is aborted first, unless both have `parts`. `parts`: it is written part by
        part, by any number of tasks, see `Transaction.part`.

        Raises StreamSealed, VersionPassed (a later version was begun or committed), Overloaded (too
        many are open), Busy, InvalidRequest.
        """
        openings, writer = self._openings, writer_settings or WriterSettings()
        what = wanted(key, parts)
        return Beginning(
            partial(openings.begin, what, settings or TransactionSettings(), writer, serializer)
        )

    @overload
    def resume(
        self,
        transaction_id: str,
        settings: TransactionSettings | None = None,
        *,
        writer_settings: WriterSettings | None = None,
    ) -> Beginning: ...

    @overload
    def resume(
        self,
        transaction_id: str,
        settings: TransactionSettings | None = None,
        *,
        writer_settings: WriterSettings | None = None,
        serializer: Serializer[T],
    ) -> Beginning[T]: ...

    def resume(
        self,
        transaction_id: str,
        settings: TransactionSettings | None = None,
        *,
        writer_settings: WriterSettings | None = None,
        serializer: Serializer[T] | None = None,
    ) -> Beginning[T]:
        """Go on with a transaction that another process began: await it, or enter it.

        It has a writer id of its own here. Leaving its block flushes and decides nothing; any
        process may commit it once all that write have flushed. Of the settings its lease and
        execution time count for nothing: they are as it was begun with.
        """
        openings, writer = self._openings, writer_settings or WriterSettings()
        return Beginning(
            partial(
                openings.resume, check_id(transaction_id), settings or TransactionSettings(),
                writer, serializer,
            )
        )  # fmt: skip

    # --- by id ----------------------------------------------------------------------------

    async def describe(self, transaction_id: str) -> TransactionInfo:
        """As it stands; of one that ended some time ago only its outcome."""
        return await self._calls.describe(transaction_id)

    async def commit(
        self,
        transaction_id: str,
        *,
        parts: Iterable[CommittedPart] = (),
        timestamp_ms: int | None = None,
        writer_id: str | None = None,
        wait: bool = True,
        timeout_s: float = COMMIT_TIMEOUT_S,
    ) -> TransactionInfo:
        """Commit what everybody has flushed into it → COMMITTED; COMMITTING without `wait`, or if
        that takes longer than `timeout_s`. Idempotent. `parts`, `timestamp_ms` and errors as
        `Transaction.commit`; the time is noted as one of the writer `writer_id`, 32 hexadecimal
        digits, or of one that is drawn.
        """
        deadline_s = self._calls.deadline(timeout_s)
        noted_by = "" if timestamp_ms is None else writer_id or self._openings.noting()
        try:
            query = CommitTransaction(
                **self._calls.names,
                transaction_id=check_id(transaction_id),
                parts=tuple(CommittedPart(part=each.part, lengths=each.lengths) for each in parts),
                timestamp_ms=timestamp_ms,
                writer_id=noted_by,
                wait_ms=COMMIT_WAIT_MS if wait else 0,
            )
        except ValueError as error:
            raise InvalidRequest(
                "a commit's time must lie between 1970 and 2^53 ms, its writer be 32 hexadecimal "
                "digits, and its parts be not too many",
                timestamp_ms=timestamp_ms,
            ) from error
        info = await self._calls.commit(query, deadline_s)
        refuse_unless_committed(info)
        if not wait or info.state is TransactionState.COMMITTED:
            return info
        return await self._calls.until_ended(transaction_id, deadline_s)

    async def abort(
        self, transaction_id: str, *, timeout_s: float = ABORT_TIMEOUT_S
    ) -> TransactionInfo:
        """Give up its events → ABORTING, or ABORTED when they are removed. Idempotent. Raises
        TransactionEnded (it is committed)."""
        return await self._calls.abort(transaction_id, timeout_s)

    async def ping(
        self, transaction_ids: str | Iterable[str], lease_ms: int | None = None
    ) -> list[TransactionPinged]:
        """Keep them alive for a lease, each as it was begun with if `lease_ms` is None → what
        became of each, in the order asked; see there. A thousand at a time go as one request."""
        ids = [transaction_ids] if isinstance(transaction_ids, str) else list(transaction_ids)
        pings = [PingTransaction(transaction_id=check_id(each), lease_ms=lease_ms) for each in ids]
        found: list[TransactionPinged] = []
        for start in range(0, len(pings), PINGS_MAX):
            page = tuple(pings[start : start + PINGS_MAX])
            query = PingTransactions(**self._calls.names, pings=page)
            answer = await self._calls.ask("ping_transactions", query, TransactionsPinged)
            found += answer.results
        return found

    async def keep_alive(
        self, transaction_id: str, lease_ms: int | None = None
    ) -> TransactionPinged:
        """Ping one, which is open → how long it lives now. Its `refusal` says when it may live no
        longer. Raises TransactionEnded, InvalidRequest (the lease is out of range)."""
        return await self._calls.ping(transaction_id, lease_ms)

    # --- all ------------------------------------------------------------------------------

    async def list(self, state: TransactionState | None = None) -> AsyncIterator[TransactionInfo]:
        """Those that have not ended, by id; with a `state` those in it, fetched page by page. Of
        ended ones at least the last thousand are known, the newest first."""
        token = ""
        while True:
            page = await self.page(state, token)
            for transaction in page.transactions:
                yield transaction
            if not (token := page.next_page_token):
                return

    async def page(
        self,
        state: TransactionState | None = None,
        page_token: str = "",
        page_size: int = PAGE_SIZE_MAX,
    ) -> TransactionList:
        """One page of them, from the start or from an earlier page's token."""
        query = ListTransactions(
            **self._calls.names, state=state, page_token=page_token, page_size=page_size
        )
        return await self._calls.ask("list_transactions", query, TransactionList)

    # --- applications ---------------------------------------------------------------------

    async def application(self, name: str) -> ApplicationDescription:
        """What the application of keyed transactions has committed to the stream, and has open; an
        unknown one has nothing. Raises InvalidRequest."""
        return await self._of_application("describe_application", DescribeApplication, name)

    async def forget_application(self, name: str) -> ApplicationDescription:
        """Let the application begin at any version again; what it has open it cannot commit any
        more. Idempotent. Raises InvalidRequest."""
        return await self._of_application("forget_application", ForgetApplication, name)

    async def _of_application(
        self,
        question: str,
        kind: type[DescribeApplication] | type[ForgetApplication],
        name: str,
    ) -> ApplicationDescription:
        try:
            query = kind(**self._calls.names, application=name)
        except ValueError as error:
            raise InvalidRequest(
                "not an application's name",
                remedy="use 1 to 250 ASCII letters, digits, dots and hyphens",
                application=name[:80],
            ) from error
        return await self._calls.ask(question, query, ApplicationDescription)
