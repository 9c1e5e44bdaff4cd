"""What commands ask about transactions, whichever way they reach the cluster.

Two fulfil it: `client_transactions` on the Python client, `http.transactions` on the HTTP gateway.
What is told comes as fields, the same ones from both; times are Unix milliseconds. Nobody here
pings by itself: a transaction that is left alone ends with its lease.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from anabranch.cli.admin_port import Fields
from anabranch.cli.sink_port import EventSink
from anabranch.client import CommittedPart, TransactionState
from anabranch.common.model.transaction import LEASE_MS_DEFAULT


@dataclass(frozen=True, slots=True)
class Beginning:
    """`execution_ms_max` 0: the usual limit. `key`: application and version."""

    lease_ms: int = LEASE_MS_DEFAULT
    execution_ms_max: int = 0
    writer: str = ""
    parts: bool = False
    key: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Committing:
    """`timestamp_ms`: noted as of the writer `writer_id`, if given."""

    parts: Sequence[CommittedPart] = ()
    timestamp_ms: int | None = None
    writer_id: str | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """A transaction, or a part of it, to write to."""

    stream: str
    transaction_id: str
    part: str | None = None


class TransactionSink(EventSink, Protocol):
    """Takes events for one destination; leaving its context waits until all are durable in it."""

    async def lengths(self) -> Mapping[int, int]:
        """Of a part: the segments that were written to here, and up to where. Flushes."""
        ...


class Transactions(Protocol):
    """The methods raise what those of `client.transactions` raise. A transaction is told as
    `transaction_id`, `state`, `stream_epoch`, `writer`, `opened_ms`, `ended_ms`, `age_ms`,
    `lease_ms`, `lease_left_ms`, `deadline_ms`, `has_parts`, `part_count`, `key` (`application`,
    `version`; None: none)."""

    async def begin(self, stream: str, beginning: Beginning) -> Fields: ...

    def listed(self, stream: str, state: TransactionState | None) -> AsyncIterator[Fields]:
        """State None: all that have not ended."""
        ...

    async def show(self, stream: str, transaction_id: str) -> Fields: ...

    async def ping(self, stream: str, transaction_id: str, lease_ms: int | None) -> Fields:
        """`transaction_id`, `state`, `lease_left_ms`, `refusal` (empty: none)."""
        ...

    async def commit(
        self, stream: str, transaction_id: str, committing: Committing, *, wait_s: float
    ) -> Fields: ...

    async def abort(self, stream: str, transaction_id: str) -> Fields: ...

    def writer(
        self, destination: Destination, key_field: str | None
    ) -> AbstractAsyncContextManager[TransactionSink]:
        """`key_field`: where in each event its key was found, if it was. A part that is not there
        is made."""
        ...

    async def application(self, stream: str, application: str) -> Fields:
        """`application`, `committed_version`, `committed_transaction`, `open_version`,
        `open_transaction`; None: nothing."""
        ...

    async def forget_application(self, stream: str, application: str) -> Fields:
        """As `application`, empty."""
        ...
