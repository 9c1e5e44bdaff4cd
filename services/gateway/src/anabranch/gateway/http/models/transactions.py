"""Transactions as bodies and answers: begin, commit, and description."""

from typing import Annotated

from pydantic import Field

from anabranch.common.contracts.transactions import (
    ApplicationDescription,
    CommittedPart,
    PartLength,
    TransactionInfo,
    TransactionKey,
)
from anabranch.common.model.stream import SEGMENT_COUNT_MAX
from anabranch.common.model.transaction import (
    APPLICATION_PATTERN,
    EXECUTION_MS_MAX,
    ID_PATTERN,
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    PARTS_MAX,
    VERSION_MAX,
    WRITER_LABEL_LENGTH_MAX,
)
from anabranch.gateway.http.models.answers import INT63, HttpBody, NextPageToken, Told

LeaseMs = Annotated[int, Field(ge=LEASE_MS_MIN, le=LEASE_MS_MAX)]
TransactionId = Annotated[str, Field(pattern=ID_PATTERN)]
Lengths = Annotated[
    dict[Annotated[int, Field(ge=0, le=INT63)], Annotated[int, Field(gt=0, le=INT63)]],
    Field(max_length=SEGMENT_COUNT_MAX),
]
"""Segment id → end offset of the written bytes."""


class KeyBody(HttpBody):
    """A version of an application's output: committed once, and in order."""

    application: Annotated[str, Field(pattern=APPLICATION_PATTERN)]
    version: Annotated[int, Field(ge=0, le=VERSION_MAX)]

    def key(self) -> TransactionKey:
        return TransactionKey(application=self.application, version=self.version)


class BeginTransactionRequest(HttpBody):
    """`executionMsMax` 0: the default limit. `writer`: a name for display."""

    lease_ms: LeaseMs = LEASE_MS_DEFAULT
    execution_ms_max: Annotated[int, Field(ge=0, le=EXECUTION_MS_MAX)] = 0
    writer: Annotated[str, Field(max_length=WRITER_LABEL_LENGTH_MAX)] = ""
    parts: bool = False
    key: KeyBody | None = None


class PingRequest(HttpBody):
    """No `leaseMs`: the lease from the begin."""

    lease_ms: LeaseMs | None = None


class PartRequest(HttpBody):
    """No `part`: the controller draws an id."""

    part: TransactionId | None = None


class CommittedPartBody(HttpBody):
    """A valid part. Omitted segments are empty."""

    part: TransactionId
    lengths: Lengths = Field({})

    def committed(self) -> CommittedPart:
        lengths = (
            PartLength(segment_id=segment, length=length)
            for segment, length in sorted(self.lengths.items())
        )
        return CommittedPart(part=self.part, lengths=tuple(lengths))


class CommitRequest(HttpBody):
    """`parts`: for a transaction with parts, the valid ones in reading order. `timestampMs`: the
    later events of the writer `writerId` are not earlier than this time."""

    parts: Annotated[list[CommittedPartBody], Field(max_length=PARTS_MAX)] = Field([])
    timestamp_ms: Annotated[int, Field(ge=0, le=VERSION_MAX)] | None = None
    writer_id: TransactionId | None = None


class KeyProperty(Told):
    application: str
    version: int


class TransactionProperty(Told):
    """Fields that the controllers have forgotten after the end are missing, or 0."""

    transaction_id: str
    state: str
    stream_epoch: int
    writer: str
    opened_ms: int
    ended_ms: int
    age_ms: int
    lease_ms: int
    lease_left_ms: int
    deadline_ms: int
    has_parts: bool
    part_count: int
    key: KeyProperty | None = None


class TransactionsList(Told):
    transactions: list[TransactionProperty]
    next_page_token: NextPageToken = ""


class PingProperty(Told):
    """`refusal`: the reason why the lease was not prolonged; empty: it was."""

    transaction_id: str
    state: str
    lease_left_ms: int
    refusal: str


class PartProperty(Told):
    transaction_id: str
    part: str


class ApplicationProperty(Told):
    """An application's committed version and its open one; a missing field: none."""

    application: str
    committed_version: int | None = None
    committed_transaction: str | None = None
    open_version: int | None = None
    open_transaction: str | None = None


def transaction_property(info: TransactionInfo) -> TransactionProperty:
    named = info.model_dump(exclude={"state", "key"})
    key = None if info.key is None else KeyProperty.model_validate(info.key)
    return TransactionProperty.model_validate(
        {**named, "state": info.state.value.upper(), "key": key}
    )


def application_property(described: ApplicationDescription) -> ApplicationProperty:
    return ApplicationProperty.model_validate(described)
