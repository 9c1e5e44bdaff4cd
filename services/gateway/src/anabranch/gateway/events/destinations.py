"""The destinations of events: a stream, a transaction, or a part of a transaction.

Each has a name, under which the gateway keeps its writer and remembers outcomes: the stream's name,
followed by the marks of a transaction's segments. The gateway only writes to a transaction. The
caller that began it over HTTP pings, commits or aborts it, so an abandoned transaction ends when
its lease expires.
"""

from anabranch.client import Client, TransactionSettings
from anabranch.client.writing.lane_writer import LaneWriter
from anabranch.common.model.names import transaction_segment, transaction_segment_name

Writer = LaneWriter[bytes | str]
WRITING = TransactionSettings(auto_ping=False)


def transaction_destination(stream: str, transaction: str, part: str = "") -> str:
    """The name of a transaction, or of a part of it."""
    return transaction_segment_name(stream, transaction, part)


def is_within(destination: str, whole: str) -> bool:
    """Whether it is `whole`, a transaction of that stream, or a part of that transaction."""
    behind = "." if "#" in whole else "#"
    return destination == whole or destination.startswith(whole + behind)


async def open_writer(client: Client, destination: str) -> Writer:
    """An open writer. Raises the errors of a writer's begin or a transaction's resume."""
    named = transaction_segment(destination)
    if named is None:
        return await client.writer(destination).__aenter__()
    transactions = client.transactions(named.parent)
    transaction = await transactions.resume(named.transaction, settings=WRITING)
    if not named.part:
        return transaction
    try:
        return await transaction.part(named.part).__aenter__()
    finally:
        await transaction.close()
