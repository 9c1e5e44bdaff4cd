"""The driver's commit and abort of a batch, from the reports of its tasks.

An outcome is decided once, by the controller. A commit may therefore be asked for again, and a
batch that a restart repeats finds its version committed. If the transaction is gone, another run of
the batch may have committed the version; otherwise nothing is committed, and the batch can run
again.
"""

from collections.abc import Sequence
from contextlib import suppress

from anabranch.client.client import Client
from anabranch.common.errors import (
    AnabranchError,
    OutcomeUnknown,
    Retry,
    TransactionEnded,
    TransactionNotFound,
    VersionPassed,
)
from anabranch.common.runtime.logger import get_logger
from anabranch.spark.options.write import WriteOptions
from anabranch.spark.writing.outputs import is_committed
from anabranch.spark.writing.reports import (
    Commit,
    Nothing,
    SinkKey,
    TaskReport,
    WasCommitted,
    decide,
    run_again,
)

_log = get_logger(__name__)


async def commit_batch(
    client: Client, options: WriteOptions, reports: Sequence[TaskReport | None]
) -> None:
    """Commit the parts that the tasks reported; idempotent.

    Raises TransactionEnded (nothing is committed), OutcomeUnknown after `commit_timeout_s`,
    PartMismatch, InvalidRequest, StreamNotFound.
    """
    match decide(reports):
        case Nothing():
            return
        case WasCommitted(key):
            _log.info(
                "the batch was committed before", application=key.application, version=key.version
            )
        case Commit() as commit:
            await _commit(client, options, commit)
            await forget(client, options, commit.key)


async def _commit(client: Client, options: WriteOptions, commit: Commit) -> None:
    transactions, key = client.transactions(options.stream), commit.key
    try:
        await transactions.commit(
            commit.transaction, parts=commit.parts, timeout_s=options.commit_timeout_s
        )
    except (TransactionEnded, TransactionNotFound, VersionPassed) as error:
        if await is_committed(client, options.stream, key):
            return
        raise TransactionEnded(
            "the transaction of the batch ended before the commit, and nothing is committed",
            remedy=run_again(key, "raise the option lease_s, and "),
            stream=str(options.stream), transaction=commit.transaction, state="aborted",
        ) from error  # fmt: skip
    except (OutcomeUnknown, Retry) as error:
        raise OutcomeUnknown(
            "the batch may be committed or not: no reply in time",
            remedy=_after_silence(options, commit),
            stream=str(options.stream), transaction=commit.transaction, cause=error.code,
        ) from error  # fmt: skip


def _after_silence(options: WriteOptions, commit: Commit) -> str:
    if not commit.key.is_drawn:
        return "run the batch again: if it is committed, the run writes nothing"
    return (
        f"look with `anabranch transaction show {options.stream} {commit.transaction}` before you "
        "write again; with the options application and version, you could simply repeat the write"
    )


async def forget(client: Client, options: WriteOptions, key: SinkKey) -> None:
    """Forget an application that was drawn for one write. If that fails, its name stays."""
    if not key.is_drawn:
        return
    try:
        await client.transactions(options.stream).forget_application(key.application)
    except AnabranchError as error:
        _log.warning(
            "an application of one write stays registered",
            application=key.application,
            error=error.code,
        )


async def abort_batch(client: Client, options: WriteOptions, key: SinkKey) -> None:
    """Abort the open transaction of a batch write, and forget a drawn application. Idempotent."""
    transactions = client.transactions(options.stream)
    found = await transactions.application(key.application)
    if found.open_transaction is not None and found.open_version == key.version:
        with suppress(TransactionEnded, TransactionNotFound):
            await transactions.abort(found.open_transaction)
    await forget(client, options, key)
