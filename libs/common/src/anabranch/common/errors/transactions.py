"""Conflicts about transactions: look at the transaction, then decide again."""

from anabranch.common.errors.families import Conflict
from anabranch.common.errors.remedy import Remedy


class TransactionEnded(Conflict):
    """The transaction's outcome excludes the request. Fields: stream, transaction, state."""

    code = "transaction-ended"
    default_remedy = Remedy(
        "begin another transaction; an outcome never changes",
        api='`client.transactions("{stream}").begin()` begins another; an outcome never changes',
        http="`POST {stream_path}/transactions` begins another; an outcome never changes",
        command="`anabranch transaction begin {stream}` begins another; an outcome never changes",
    )


class EpochPassed(Conflict):
    """The stream has other segments than the commit names. Fields: stream, stream_epoch (the
    present one)."""

    code = "epoch-passed"
    default_remedy = Remedy("route the events over the present segments, and commit them again")


class IdOutOfTime(Conflict):
    """The id of a transaction was drawn too long ago, or by a clock that is ahead. Fields: stream,
    transaction, now_ms (by the controller's clock)."""

    code = "id-out-of-time"
    default_remedy = Remedy(
        "set the clock of the client's machine, or use a transaction that is begun",
        api="set this machine's clock; `await writer.transaction()` needs no clock",
    )


class PartMismatch(Conflict):
    """A part does not have the committed lengths. Fields: transaction, part, segment, length."""

    code = "part-mismatch"
    default_remedy = Remedy(
        "commit the lengths that the parts' writers reported, or abort",
        api="commit the parts' `part.report()` from after their flush, or abort",
        http="commit the largest length of each segment in the answers for the part, or abort",
        command="commit the last report that a write printed for each part, or abort",
    )


class VersionPassed(Conflict):
    """The application went on to another version. Fields: stream, application, version."""

    code = "version-passed"
    default_remedy = Remedy(
        "continue after the application's committed version",
        api='continue after the version of `client.transactions("{stream}")'
        '.application("{application}")`',
        http="continue after the version of "
        "`GET {stream_path}/transactions/applications/{application}`",
        command="continue after the version of "
        "`anabranch transaction application show {stream} {application}`",
    )
