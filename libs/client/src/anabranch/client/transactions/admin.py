"""`client.transactions(stream)`: begins the transactions of a stream, and asks about them.

Any process that knows a transaction's id may write to it, ping it and end it. All methods raise
StreamNotFound, ScopeNotFound, and Unavailable if no reply comes in time. Methods that name a
transaction also raise TransactionNotFound (it never existed, or its outcome is forgotten) and
InvalidRequest.
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
    """The transactions of one stream; made by `Client.transactions`. See the module.

    ::

        async with client.transactions("plant/sensors").begin() as txn:
            txn.write(b"21.5", key="boiler")
    """

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
        """Begin a transaction: enter the result with `async with`, or await it.

        Without key and parts, one that is entered is begun only if it must be: see
        `EventWriter.transaction`.

        `key` is (application, version), as a tuple or TransactionKey: only one transaction of a
        version is ever committed, and versions are committed in order. If the version was committed
        before, the result is that transaction, which `is_done`. If an earlier attempt left one
        open, it is aborted first, unless both have `parts`. With `parts`, any number of tasks write
        it part by part, see `Transaction.part`.

        Raises StreamSealed, VersionPassed (a later version was begun or committed), Overloaded (too
        many are open), Busy, InvalidRequest.

        ::

            async with transactions.begin(key=("nightly-import", 7)) as txn:
                if not txn.is_done:
                    txn.write(b"21.5", key="boiler")
        """
        what, writer = wanted(key, parts), writer_settings or WriterSettings()
        return self._openings.entered(what, settings or TransactionSettings(), writer, serializer)

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
        """Resume a transaction that another process began: await the result, or enter it.

        It has a writer id of its own in this process. Leaving its block flushes and does not decide
        the outcome; any process may commit it once all writers have flushed. The settings' lease
        and execution time do not apply: those of the begin stay.

        ::

            async with transactions.resume(transaction_id) as txn:
                txn.write(b"4", key="door")
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
        """Its present description; of one that ended some time ago, only the outcome.

        ::

            info = await transactions.describe(transaction_id)
        """
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
        """Commit everything that any process has flushed into it. Returns it as COMMITTED; as
        COMMITTING without `wait`, or if that takes longer than `timeout_s`.

        Idempotent. `parts`, `timestamp_ms` and errors are as in `Transaction.commit`. The time is
        noted for the writer `writer_id`, 32 hexadecimal digits, or for a new one.

        ::

            await transactions.commit(transaction_id, timeout_s=30)
        """
        deadline_s = self._calls.deadline(timeout_s)
        unmerged = self._openings.submissions.shared.unmerged
        before = unmerged.decided()
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
        state: TransactionState | None = None
        try:
            info = await self._calls.commit(query, deadline_s)
            state = info.state
        finally:
            unmerged.returned(transaction_id, state, before)
        refuse_unless_committed(self._calls.stream, info)
        if not wait or info.state is TransactionState.COMMITTED:
            return info
        return await self._calls.until_ended(transaction_id, deadline_s)

    async def abort(
        self, transaction_id: str, *, timeout_s: float = ABORT_TIMEOUT_S
    ) -> TransactionInfo:
        """Discard its events. Returns it as ABORTING, or as ABORTED when they are removed.

        Idempotent. Raises TransactionEnded (it is committed).

        ::

            await transactions.abort(transaction_id)
        """
        return await self._calls.abort(transaction_id, timeout_s)

    async def ping(
        self, transaction_ids: str | Iterable[str], lease_ms: int | None = None
    ) -> list[TransactionPinged]:
        """Renew the leases of transactions. Returns one answer per id, in the order of the ids.

        With `lease_ms` None, each lease is as long as at the beginning. One request carries up to a
        thousand ids.

        ::

            answers = await transactions.ping([transaction_id], lease_ms=60_000)
        """
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
        """Renew the lease of one open transaction. Returns how long it lives now.

        The answer's `refusal` tells when it may live no longer. Raises TransactionEnded,
        InvalidRequest (the lease is out of range).

        ::

            await transactions.keep_alive(transaction_id)
        """
        return await self._calls.ping(transaction_id, lease_ms)

    # --- all ------------------------------------------------------------------------------

    async def list(self, state: TransactionState | None = None) -> AsyncIterator[TransactionInfo]:
        """The transactions that have not ended, by id, fetched page by page; with a `state`, those
        in it. At least the last thousand ended ones are known, the newest first.

        ::

            async for info in transactions.list():
                print(info.transaction_id, info.state)
        """
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
        """One page of the list, from the start or from an earlier page's token.

        ::

            page = await transactions.page(page_size=100)
            page = await transactions.page(page_token=page.next_page_token)
        """
        query = ListTransactions(
            **self._calls.names, state=state, page_token=page_token, page_size=page_size
        )
        return await self._calls.ask("list_transactions", query, TransactionList)

    # --- applications ---------------------------------------------------------------------

    async def application(self, name: str) -> ApplicationDescription:
        """The committed and open versions of an application of keyed transactions.

        An unknown application has none. Raises InvalidRequest.

        ::

            found = await transactions.application("nightly-import")
        """
        return await self._of_application("describe_application", DescribeApplication, name)

    async def forget_application(self, name: str) -> ApplicationDescription:
        """Let the application begin at any version again. Its open transactions can no longer
        commit.

        Idempotent. Raises InvalidRequest.

        ::

            await transactions.forget_application("nightly-import")
        """
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
