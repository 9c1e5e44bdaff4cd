"""Transactions: request/reply as in `queries.py`, also for what changes something.

Any controller decides them, by compare-and-set on the transaction's own subject. All may be
repeated: a commit and an abort answer the second time as the first. A begin whose answer was lost
is repeated, too: what the first one began nobody pings, so it is aborted. What is decided is told
at once; the work that follows is the stream's, and `wait_ms` says how long the answer may wait for
its end.

Times are Unix ms of controllers; `age_ms` and `lease_left_ms` are differences, so that callers need
no clock of theirs.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract, ReadToken
from anabranch.common.contracts.queries import PagedQuery, Question, SegmentInStream
from anabranch.common.contracts.stream_queries import StreamQuery
from anabranch.common.model.stream import SEGMENT_COUNT_MAX
from anabranch.common.model.transaction import (
    APPLICATION_PATTERN,
    EXECUTION_MS_MAX,
    ID_PATTERN,
    LEASE_MS_DEFAULT,
    PART_LENGTHS_MAX,
    PARTS_MAX,
    VERSION_MAX,
    WRITER_LABEL_LENGTH_MAX,
    TransactionState,
)

PINGS_MAX = 1_000
"""Transactions that one request pings."""
WAIT_MS_MAX = 30_000


class TransactionKey(Contract):
    """A version of an application's output: committed once, and in order."""

    application: str = Field(pattern=APPLICATION_PATTERN)
    version: int = Field(ge=0, le=VERSION_MAX)


class TransactionQuery(StreamQuery):
    """Any of them raises TransactionNotFound (it never was, or its outcome is forgotten), and
    StreamNotFound and ScopeNotFound. `incarnation`: which life of the stream is meant."""

    transaction_id: str = Field(pattern=ID_PATTERN)
    incarnation: int | None = None


class BeginTransaction(StreamQuery):
    """→ TransactionBegun.

    `lease_ms`: it is aborted when it is not pinged for so long; `execution_ms_max`: 0 for the
    usual limit (`EXECUTION_LEASES_MAX` leases, at most a day). `writer`: whose it is, to be shown.

    With a `key`, the transaction of that version is got or created. If that version was committed
    before, the answer is its transaction, in COMMITTING or COMMITTED and without segments.

    Raises StreamNotFound, ScopeNotFound, StreamSealed (or about to be), InvalidRequest,
    Overloaded (too many open ones), VersionPassed (key: a later version was begun or committed).
    """

    incarnation: int | None = None
    lease_ms: int = LEASE_MS_DEFAULT
    execution_ms_max: int = Field(default=0, ge=0, le=EXECUTION_MS_MAX)
    writer: str = Field(default="", max_length=WRITER_LABEL_LENGTH_MAX)
    parts: bool = False
    key: TransactionKey | None = None


class TransactionInfo(Contract):
    """A transaction as it stands. Of one that has ended some time ago only the first five fields
    are known, the others are as by default. `stream_epoch`: in which it was opened.
    `deadline_ms`: when it is aborted unless it is pinged; 0 once it has an outcome."""

    transaction_id: str
    """32 hexadecimal digits."""
    state: TransactionState
    """Its state when the controller answered."""
    incarnation: int
    """The stream's incarnation that it belongs to."""
    stream_epoch: int
    ended_ms: int = 0
    """The Unix time in milliseconds when it became COMMITTED or ABORTED; 0 before."""
    writer: str = ""
    """The label that its begin gave it."""
    opened_ms: int = 0
    """The Unix time of its begin in milliseconds."""
    age_ms: int = 0
    """The milliseconds since its begin, at the time of the answer."""
    lease_ms: int = 0
    """The length of its lease in milliseconds."""
    lease_left_ms: int = 0
    """The milliseconds left of its lease, at the time of the answer; 0 once it has an outcome."""
    deadline_ms: int = 0
    has_parts: bool = False
    """Whether tasks write it in parts, so that its commit names the valid parts."""
    part_count: int = 0
    """The number of its parts; 0 without `has_parts`."""
    key: TransactionKey | None = None
    """The version of an application's output that it commits. None: a transaction without a key."""


class TransactionBegun(Contract):
    """`segments`: where to write, by key range; each `name` is that of the transaction's own
    segment, `segment_id` that of its parent. Empty with parts, and once it has an outcome.
    `is_new`: this very request began it; what was got by its key may hold events of somebody who
    began it before."""

    ok: Literal[True] = True
    transaction: TransactionInfo
    is_new: bool = False
    segments: tuple[SegmentInStream, ...] = ()


class ResumeTransaction(TransactionQuery):
    """→ TransactionBegun: as it was when it was begun, to go on with elsewhere."""


class AddTransactionPart(TransactionQuery):
    """→ TransactionBegun: `segments` are the part's. Idempotent.

    Raises InvalidRequest (the transaction has no parts, or too many), TransactionEnded.
    """

    part: str = Field(pattern=ID_PATTERN)


class DescribeTransaction(TransactionQuery):
    """→ TransactionDescription."""


class TransactionDescription(Contract):
    """`read_token`: a query that demands this point sees what is said here."""

    ok: Literal[True] = True
    transaction: TransactionInfo
    read_token: ReadToken | None = None


class PingTransaction(Contract):
    """`lease_ms` None: as it was begun with."""

    transaction_id: str = Field(pattern=ID_PATTERN)
    lease_ms: int | None = None


class PingTransactions(StreamQuery):
    """→ TransactionsPinged, in the order asked. Raises StreamNotFound, ScopeNotFound."""

    incarnation: int | None = None
    pings: tuple[PingTransaction, ...] = Field(max_length=PINGS_MAX)


class TransactionPinged(Contract):
    """`state` None: there is no such transaction (any more). A ping after the decision tells the
    outcome. `refusal`: the lease was not prolonged because it is out of range, or would go beyond
    the longest time that the transaction may take."""

    transaction_id: str
    state: TransactionState | None
    lease_left_ms: int = 0
    refusal: Literal["", "lease_out_of_range", "execution_exceeded"] = ""


class TransactionsPinged(Contract):
    ok: Literal[True] = True
    results: tuple[TransactionPinged, ...]


class PartLength(Contract):
    """Up to where the part's segment beside the stream's segment `segment_id` was written."""

    segment_id: int
    length: int = Field(gt=0)


class CommittedPart(Contract):
    """A part that counts. Segments that are not named are empty."""

    part: str = Field(pattern=ID_PATTERN)
    lengths: tuple[PartLength, ...] = Field(default=(), max_length=SEGMENT_COUNT_MAX)


class CommitTransaction(TransactionQuery):
    """→ TransactionDescription, in COMMITTING or COMMITTED: the outcome is irrevocable.

    `parts`: of a transaction with parts those that count, in the order in which they are merged;
    the others are deleted. At most `PART_LENGTHS_MAX` lengths in all. `timestamp_ms`: the writer's
    time, noted as a mark of `writer_id` when the events are there.

    Raises TransactionEnded (it is aborted or about to be), PartMismatch (a part is unknown, or
    not as long as is said; the transaction stays open), VersionPassed, InvalidRequest.
    """

    parts: tuple[CommittedPart, ...] = Field(default=(), max_length=PARTS_MAX)
    writer_id: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    timestamp_ms: int | None = Field(default=None, ge=0, le=VERSION_MAX)
    wait_ms: int = Field(default=0, ge=0, le=WAIT_MS_MAX)


class AbortTransaction(TransactionQuery):
    """→ TransactionDescription, in ABORTING or ABORTED. Raises TransactionEnded (committed)."""

    wait_ms: int = Field(default=0, ge=0, le=WAIT_MS_MAX)


class ListTransactions(PagedQuery):
    """→ TransactionList. `state` None: all that have not ended, in the order of their ids. Of those
    that have, at least the last five hundred are listed, the newest first.

    Raises StreamNotFound, ScopeNotFound.
    """

    scope: str
    stream: str
    state: TransactionState | None = None


class TransactionList(Contract):
    ok: Literal[True] = True
    transactions: tuple[TransactionInfo, ...]
    next_page_token: str = ""
    """Empty on the last page."""


class DescribeApplication(StreamQuery):
    """→ ApplicationDescription, also of an application that never was."""

    application: str = Field(pattern=APPLICATION_PATTERN)


class ApplicationDescription(Contract):
    """What an application has committed to a stream. None: nothing; or nothing is open."""

    ok: Literal[True] = True
    application: str
    """The name of the application."""
    committed_version: int | None = None
    """The highest committed version."""
    committed_transaction: str | None = None
    """The transaction of that version; None if and only if the version is."""
    open_version: int | None = None
    """The version of the transaction that is open."""
    open_transaction: str | None = None
    """The transaction of that version; None if and only if the version is."""


class ForgetApplication(StreamQuery):
    """→ ApplicationDescription, empty: the application may begin at any version again. Idempotent.
    What it has open it cannot commit any more."""

    application: str = Field(pattern=APPLICATION_PATTERN)


assert PARTS_MAX <= PART_LENGTHS_MAX

QUERIES: Mapping[str, Question] = {
    "describe_transaction": Question(DescribeTransaction, TransactionDescription),
    "list_transactions": Question(ListTransactions, TransactionList),
    "describe_application": Question(DescribeApplication, ApplicationDescription),
}
"""Questions that only read, by name."""

ACTIONS: Mapping[str, Question] = {
    "begin_transaction": Question(BeginTransaction, TransactionBegun),
    "resume_transaction": Question(ResumeTransaction, TransactionBegun),
    "add_transaction_part": Question(AddTransactionPart, TransactionBegun),
    "ping_transactions": Question(PingTransactions, TransactionsPinged),
    "commit_transaction": Question(CommitTransaction, TransactionDescription),
    "abort_transaction": Question(AbortTransaction, TransactionDescription),
    "forget_application": Question(ForgetApplication, ApplicationDescription),
}
"""Questions that change something, by name."""
