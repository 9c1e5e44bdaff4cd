"""Transactions: request/reply as in `queries.py`, for queries and for changes.

Any controller decides them, by compare-and-set on the transaction's own subject. All may be
repeated: a repeated commit or abort gets the same answer. A client may also repeat a begin whose
answer was lost: no client pings the first transaction, so its lease expires and it is aborted. The
controller answers as soon as the outcome is decided. The stream's owner performs the work that
follows, and `wait_ms` lets the answer wait for its end.

Times are Unix ms of the controllers' clocks; `age_ms` and `lease_left_ms` are differences, so that
callers need no synchronized clock.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Base64, Contract, ReadToken
from anabranch.common.contracts.queries import PagedQuery, Question, SegmentInStream
from anabranch.common.contracts.stream_queries import StreamQuery
from anabranch.common.model.stream import SEGMENT_COUNT_MAX
from anabranch.common.model.transaction import (
    APPLICATION_PATTERN,
    CARRIED_SEGMENTS_MAX,
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
"""The largest number of transactions in one ping request."""
WAIT_MS_MAX = 30_000


class TransactionKey(Contract):
    """A version of an application's output. Versions are committed once and in order."""

    application: str = Field(pattern=APPLICATION_PATTERN)
    version: int = Field(ge=0, le=VERSION_MAX)


class TransactionQuery(StreamQuery):
    """The base of queries about one transaction.

    Each raises TransactionNotFound (it never existed, or its outcome is forgotten), StreamNotFound
    and ScopeNotFound. `incarnation`: the incarnation of the stream; None: the present one.
    """

    transaction_id: str = Field(pattern=ID_PATTERN)
    incarnation: int | None = None


class BeginTransaction(StreamQuery):
    """→ TransactionBegun.

    `lease_ms`: without a ping for this long, the transaction is aborted. `execution_ms_max`: the
    longest time until its outcome; 0: the default limit (`EXECUTION_LEASES_MAX` leases, at most a
    day). `writer`: a label of its writer, for display.

    With a `key`, the answer is the open transaction of that version, or a new one. If the version
    was committed before, it is the committed transaction, in COMMITTING or COMMITTED and without
    segments.

    Raises StreamNotFound, ScopeNotFound, StreamSealed (also while the stream is being sealed),
    InvalidRequest, Overloaded (too many open transactions), VersionPassed (key: a later version was
    begun or committed).
    """

    incarnation: int | None = None
    lease_ms: int = LEASE_MS_DEFAULT
    execution_ms_max: int = Field(default=0, ge=0, le=EXECUTION_MS_MAX)
    writer: str = Field(default="", max_length=WRITER_LABEL_LENGTH_MAX)
    parts: bool = False
    key: TransactionKey | None = None


class TransactionInfo(Contract):
    """A transaction. If it ended some time ago, only the first five fields are known, and the
    others have their defaults.

    `stream_epoch`: the epoch in which it was opened. `deadline_ms`: the time at which it is aborted
    unless it is pinged; 0 once it has an outcome.
    """

    transaction_id: str
    """32 hexadecimal digits."""
    state: TransactionState
    """Its state when the controller answered."""
    incarnation: int
    """The incarnation of the stream to which it belongs."""
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
    """Whether tasks write the transaction in parts; its commit then names the valid parts."""
    part_count: int = 0
    """The number of its parts; 0 without `has_parts`."""
    key: TransactionKey | None = None
    """The version of an application's output that it commits. None: a transaction without a key."""


class TransactionBegun(Contract):
    """A transaction and the segments to write to.

    `segments`: sorted by key range; each `name` is the transaction's own segment, each `segment_id`
    the id of its parent. Empty with parts, and once the transaction has an outcome. `is_new`: this
    request began the transaction; otherwise it was found by its key, and may hold events of an
    earlier writer.
    """

    ok: Literal[True] = True
    transaction: TransactionInfo
    is_new: bool = False
    segments: tuple[SegmentInStream, ...] = ()


class ResumeTransaction(TransactionQuery):
    """→ TransactionBegun, as its begin answered, so that another client can continue it."""


class AddTransactionPart(TransactionQuery):
    """→ TransactionBegun with the segments of the part. Idempotent.

    Raises InvalidRequest (the transaction has no parts, or too many), TransactionEnded.
    """

    part: str = Field(pattern=ID_PATTERN)


class DescribeTransaction(TransactionQuery):
    """→ TransactionDescription."""


class TransactionDescription(Contract):
    """A transaction. `read_token`: a query that demands this point sees this state."""

    ok: Literal[True] = True
    transaction: TransactionInfo
    read_token: ReadToken | None = None


class PingTransaction(Contract):
    """A ping of one transaction. `lease_ms` None: the lease of its begin."""

    transaction_id: str = Field(pattern=ID_PATTERN)
    lease_ms: int | None = None


class PingTransactions(StreamQuery):
    """→ TransactionsPinged, in the order of the pings. Raises StreamNotFound, ScopeNotFound."""

    incarnation: int | None = None
    pings: tuple[PingTransaction, ...] = Field(max_length=PINGS_MAX)


class TransactionPinged(Contract):
    """The result of one ping.

    `state` None: the transaction does not exist, or its outcome is forgotten. After the decision,
    `state` is the outcome. `refusal`: the controller did not prolong the lease, because it is out
    of range or would exceed the longest time that the transaction may take.
    """

    transaction_id: str
    state: TransactionState | None
    lease_left_ms: int = 0
    refusal: Literal["", "lease_out_of_range", "execution_exceeded"] = ""


class TransactionsPinged(Contract):
    ok: Literal[True] = True
    results: tuple[TransactionPinged, ...]


class PartLength(Contract):
    """The length of the part's segment whose parent is the stream's segment `segment_id`."""

    segment_id: int
    length: int = Field(gt=0)


class CommittedPart(Contract):
    """A valid part, with the lengths of its segments. Segments without a length are empty."""

    part: str = Field(pattern=ID_PATTERN)
    lengths: tuple[PartLength, ...] = Field(default=(), max_length=SEGMENT_COUNT_MAX)


class CommitTransaction(TransactionQuery):
    """→ TransactionDescription, in COMMITTING or COMMITTED: the outcome is irrevocable.

    `parts`: for a transaction with parts, the valid parts in the order in which they are merged;
    the other parts are deleted. They have at most `PART_LENGTHS_MAX` lengths in all.
    `timestamp_ms`: the writer's time, which becomes a mark of `writer_id` when the events are in
    the stream.

    Raises TransactionEnded (the transaction is ABORTING or ABORTED), PartMismatch (a part is
    unknown or has another length; the transaction stays open), VersionPassed, InvalidRequest.
    """

    parts: tuple[CommittedPart, ...] = Field(default=(), max_length=PARTS_MAX)
    writer_id: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    timestamp_ms: int | None = Field(default=None, ge=0, le=VERSION_MAX)
    wait_ms: int = Field(default=0, ge=0, le=WAIT_MS_MAX)


class CarriedBlock(Contract):
    """The events for one segment: one block of small events, as a store appends it."""

    segment_id: int
    block: Base64


class CommitEvents(StreamQuery):
    """→ TransactionDescription, in COMMITTING or COMMITTED: the outcome is irrevocable.

    Submits a *carried* transaction: it begins and commits by this one request, which has all its
    events (ADR 19). The client draws `transaction_id` and repeats the request with the same id: a
    transaction is submitted once. `stream_epoch`: the epoch to which the segments belong, each of
    which is named once; `blocks` have at most `CARRIED_SIZE_BYTES_MAX` bytes in sum.

    Raises StreamNotFound, ScopeNotFound, StreamSealed (also while the stream is being sealed),
    EpochPassed (this request has stored nothing), IdOutOfTime (the id was drawn too long ago or is
    of a future time, and the controller does not know it), InvalidRequest, and the errors of a
    block that no store would append; Busy (too much waits for its merge).
    """

    transaction_id: str = Field(pattern=ID_PATTERN)
    incarnation: int
    stream_epoch: int
    blocks: tuple[CarriedBlock, ...] = Field(min_length=1, max_length=CARRIED_SEGMENTS_MAX)
    writer: str = Field(default="", max_length=WRITER_LABEL_LENGTH_MAX)
    wait_ms: int = Field(default=0, ge=0, le=WAIT_MS_MAX)


class AbortTransaction(TransactionQuery):
    """→ TransactionDescription, in ABORTING or ABORTED. Raises TransactionEnded if committed."""

    wait_ms: int = Field(default=0, ge=0, le=WAIT_MS_MAX)


class ListTransactions(PagedQuery):
    """→ TransactionList.

    `state` None: the transactions that have not ended, sorted by id. With an ended state, the
    answer lists at least the last five hundred such transactions, newest first.

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
    """→ ApplicationDescription, also for an unknown application."""

    application: str = Field(pattern=APPLICATION_PATTERN)


class ApplicationDescription(Contract):
    """An application's last commit to a stream, and its open transaction. None: it has none."""

    ok: Literal[True] = True
    application: str
    """The name of the application."""
    committed_version: int | None = None
    """The highest committed version."""
    committed_transaction: str | None = None
    """The transaction of that version; None exactly if the version is None."""
    open_version: int | None = None
    """The version of the transaction that is open."""
    open_transaction: str | None = None
    """The transaction of that version; None exactly if the version is None."""


class ForgetApplication(StreamQuery):
    """→ ApplicationDescription, empty. Forgets an application's commits. Idempotent.

    The application may begin at any version again. It can no longer commit its open transaction.
    """

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
    "commit_events": Question(CommitEvents, TransactionDescription),
    "abort_transaction": Question(AbortTransaction, TransactionDescription),
    "forget_application": Question(ForgetApplication, ApplicationDescription),
}
"""Questions that change something, by name."""
