"""What events are stored in: a stream, a transaction, or a part of one.

Each has a name, by which its writer is kept and its answers are remembered: a stream's own one, and
behind it what marks a transaction's segments. A transaction is only written to: who opened it over
HTTP pings it, commits it or aborts it, so one that its caller left is over when its lease is.
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
    """A writer that is ready. Raises what a writer's begin, or a transaction's resume, raises."""
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
