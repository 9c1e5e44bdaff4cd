"""The facts of a transaction's life. Past tense, tagged, numbered; old ones stay readable.

`TransactionCommitting`, `TransactionSubmitted` and `TransactionAborting` are the outcome; the final
event follows when the work is done. Transactions commit in the order in which they became
COMMITTING in the shard.
"""

from typing import Annotated, Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.transactions import CarriedBlock, TransactionKey

AbortReason = Literal["asked", "expired", "sealing", "replaced"]
"""A caller requested it, no ping came in time, its stream takes no more, or another transaction has
its version.
"""


class TransactionOpened(Contract):
    """It takes writes beside the segments of `stream_epoch`, the stream's at that moment."""

    kind: Literal["transaction_opened"] = "transaction_opened"
    schema_number: Literal[1] = 1
    scope: str
    stream: str
    incarnation: int
    transaction_id: str
    stream_epoch: int
    writer: str
    at_ms: int
    lease_ms: int
    execution_ms_max: int
    deadline_ms: int
    has_parts: bool
    key: TransactionKey | None = None


class TransactionSubmitted(Contract):
    """It began and is committed, irrevocably, with these events: one block for each named segment
    of `stream_epoch`, in the order of the request.
    """

    kind: Literal["transaction_submitted"] = "transaction_submitted"
    schema_number: Literal[1] = 1
    scope: str
    stream: str
    incarnation: int
    transaction_id: str
    stream_epoch: int
    writer: str
    at_ms: int
    blocks: tuple[CarriedBlock, ...]


class TransactionPinged(Contract):
    """It is not aborted before `deadline_ms`. `lease_ms`: the lease that this ping requested."""

    kind: Literal["transaction_pinged"] = "transaction_pinged"
    schema_number: Literal[1] = 1
    deadline_ms: int
    lease_ms: int


class TransactionPartAdded(Contract):
    """The part may have segments from now on, which the end of the transaction deletes."""

    kind: Literal["transaction_part_added"] = "transaction_part_added"
    schema_number: Literal[1] = 1
    part: str


class TransactionCommitting(Contract):
    """It is committed, irrevocably. `parts`: the valid ones, in merge order; `timestamp_ms`: the
    time to note as a mark of `writer_id`.
    """

    kind: Literal["transaction_committing"] = "transaction_committing"
    schema_number: Literal[1] = 1
    parts: tuple[str, ...]
    writer_id: str
    timestamp_ms: int | None
    at_ms: int


class TransactionCommitted(Contract):
    """Its events are in the stream, and it has no segments any more."""

    kind: Literal["transaction_committed"] = "transaction_committed"
    schema_number: Literal[1] = 1
    at_ms: int


class TransactionAborting(Contract):
    """It is aborted, irrevocably."""

    kind: Literal["transaction_aborting"] = "transaction_aborting"
    schema_number: Literal[1] = 1
    reason: AbortReason
    at_ms: int


class TransactionAborted(Contract):
    """It has no segments any more."""

    kind: Literal["transaction_aborted"] = "transaction_aborted"
    schema_number: Literal[1] = 1
    at_ms: int


TransactionEvent = Annotated[
    TransactionOpened
    | TransactionSubmitted
    | TransactionPinged
    | TransactionPartAdded
    | TransactionCommitting
    | TransactionCommitted
    | TransactionAborting
    | TransactionAborted,
    Field(discriminator="kind"),
]
