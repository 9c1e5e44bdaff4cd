"""Queries for the transactions of a stream and for its applications, and all tables of handlers.

Unfinished transactions are listed in the order of their ids, ended ones from the newest back. A
page token of ended transactions is a place among all that ever ended, so later ends do not move it.
"""

from collections.abc import Iterator

from anabranch.common.contracts import transactions as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.subjects import transaction_key
from anabranch.common.contracts.transactions import TransactionInfo
from anabranch.common.model.transaction import TransactionState, check_id
from anabranch.controller.domain import application
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.transaction import answers
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, stream_at_head
from anabranch.controller.handlers.desk.pages import number_in, page_of
from anabranch.controller.handlers.transactions.begin import (
    add_part,
    begin,
    resume_transaction,
)
from anabranch.controller.handlers.transactions.carried import commit_events
from anabranch.controller.handlers.transactions.keys import application_at_head, begin_with_key
from anabranch.controller.handlers.transactions.lookup import Found, require_complete
from anabranch.controller.handlers.transactions.outcomes import (
    abort_transaction,
    commit_transaction,
    describe_transaction,
)
from anabranch.controller.handlers.transactions.pings import ping_transactions


async def begin_transaction(desk: QueryDesk, query: asked.BeginTransaction) -> Contract:
    """Begin a transaction, or find the one with the key. Raises as `begin` and `begin_with_key`."""
    if query.key is None:
        return await begin(desk, query)
    return await begin_with_key(desk, query, query.key)


async def list_transactions(desk: QueryDesk, query: asked.ListTransactions) -> Contract:
    """A page of them. Raises StreamNotFound, ScopeNotFound, InvalidRequest, Unavailable."""
    stream = (await stream_at_head(desk, query)).state
    if query.state is not None and query.state.has_ended:
        return _ended(desk, stream, query, query.state)
    return _unfinished(desk, stream, query)


def _unfinished(
    desk: QueryDesk, stream: Stream, query: asked.ListTransactions
) -> asked.TransactionList:
    after = check_id(query.page_token) if query.page_token else ""
    now_ms = desk.transactions.clock.now_ms()
    found = [
        loaded.state
        for loaded in desk.mirror.transactions.listed(ref_of(stream), stream.incarnation)
        if loaded.state.transaction_id > after
        and not loaded.state.has_ended
        and query.state in (None, loaded.state.status)
    ]
    found.sort(key=lambda transaction: transaction.transaction_id)
    page, more = page_of((answers.described(one, now_ms) for one in found), query.page_size)
    token = page[-1].transaction_id if more else ""
    return asked.TransactionList(transactions=page, next_page_token=token)


def _ended(
    desk: QueryDesk,
    stream: Stream,
    query: asked.ListTransactions,
    state: TransactionState,
) -> asked.TransactionList:
    before = number_in(query.page_token)
    now_ms = desk.transactions.clock.now_ms()
    places: list[int] = []

    def infos() -> Iterator[TransactionInfo]:
        for place, found in _newest_first(desk, stream):
            if found.state is state and (before is None or place < before):
                places.append(place)
                yield found.info(now_ms)

    page, more = page_of(infos(), query.page_size)
    token = str(places[len(page) - 1]) if more else ""
    return asked.TransactionList(transactions=page, next_page_token=token)


def _newest_first(desk: QueryDesk, stream: Stream) -> Iterator[tuple[int, Found]]:
    """The ended transactions that the stream's state and the mirror know, with their places.

    The transactions that the stream has not noted yet are the newest, in the order of their ends.
    """
    known = desk.mirror.transactions.listed(ref_of(stream), stream.incarnation)
    found = [Found(stream, one) for one in stream.outcomes]
    unnoted = sorted((one for one in known if one.state.has_ended), key=lambda one: one.sequence)
    found += [Found(stream, one) for one in unnoted]
    place = stream.outcome_count + len(unnoted)
    for one in reversed(found):
        place -= 1
        yield place, one


async def describe_application(desk: QueryDesk, query: asked.DescribeApplication) -> Contract:
    """What the application has committed. Raises StreamNotFound, ScopeNotFound, Unavailable."""
    stream, subject = await _application(desk, query)
    found = await application_at_head(desk, subject)
    if found.committed_version is None:
        await require_complete(desk, query, stream.incarnation)
    return application.described(found, query.application)


async def forget_application(desk: QueryDesk, query: asked.ForgetApplication) -> Contract:
    """Let the application begin at any version again. Idempotent.

    Raises StreamNotFound, ScopeNotFound, Busy, OutcomeUnknown, Unavailable.
    """
    _, subject = await _application(desk, query)
    loaded = await desk.transactions.applications.transact(
        subject, lambda seen: application.forget(seen.state)
    )
    return application.described(loaded.state, query.application)


async def _application(
    desk: QueryDesk, query: asked.DescribeApplication | asked.ForgetApplication
) -> tuple[Stream, str]:
    """The stream, and the application's subject."""
    stream = (await stream_at_head(desk, query)).state
    return stream, transaction_key(ref_of(stream), stream.incarnation, query.application)


QUERIES: Table = {
    "describe_transaction": (asked.DescribeTransaction, describe_transaction),
    "list_transactions": (asked.ListTransactions, list_transactions),
    "describe_application": (asked.DescribeApplication, describe_application),
}

ACTIONS: Table = {
    "begin_transaction": (asked.BeginTransaction, begin_transaction),
    "resume_transaction": (asked.ResumeTransaction, resume_transaction),
    "add_transaction_part": (asked.AddTransactionPart, add_part),
    "ping_transactions": (asked.PingTransactions, ping_transactions),
    "commit_transaction": (asked.CommitTransaction, commit_transaction),
    "commit_events": (asked.CommitEvents, commit_events),
    "abort_transaction": (asked.AbortTransaction, abort_transaction),
    "forget_application": (asked.ForgetApplication, forget_application),
}
