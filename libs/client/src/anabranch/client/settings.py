"""The settings of writers, readers, tables and streams of one segment, and their defaults."""

from dataclasses import dataclass
from typing import Literal

from anabranch.common.adapters.store_connection import ConnectionSettings as ConnectionSettings
from anabranch.common.errors import InvalidSetting
from anabranch.common.model.transaction import (
    EXECUTION_MS_MAX,
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    WRITER_LABEL_LENGTH_MAX,
)
from anabranch.common.wire.block import (
    BLOCK_SIZE_BYTES_MAX,
    EVENT_SIZE_BYTES_MAX,
    KEY_SIZE_BYTES_MAX,
    LARGE_EVENT_SIZE_BYTES_MAX,
)
from anabranch.common.wire.codec import ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX
from anabranch.common.wire.messages import REQUESTS_IN_FLIGHT_MAX

KIB = 1024
MIB = 1024 * KIB
WRITER_BLOCK_SIZE_BYTES_MAX = BLOCK_SIZE_BYTES_MAX - EVENT_SIZE_BYTES_MAX - KEY_SIZE_BYTES_MAX - KIB
"""A block is closed by the event that reaches its size, and that one may be of any size."""
COMMIT_TIMEOUT_S = 60.0
ABORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class BackoffSettings:
    """Pauses between attempts: they double from `first_s` to `longest_s`, half of each random."""

    first_s: float = 0.001
    longest_s: float = 0.5


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """The settings of a writer.

    ::

        settings = WriterSettings(compression="zstd", retry_timeout_s=10)
        async with client.writer("plant/sensors", settings) as writer:
            writer.write(b"21.5")

    Invariants, or InvalidSetting: sizes and counts are at least 1 and timeouts are positive;
    `block_size_bytes` leaves room for one more event of 8 MiB below the largest block;
    `event_size_bytes_max` is at most 1 GiB; `compression_level` is in the codec's range. An event
    must also fit into `buffer_size_bytes`.
    """

    buffer_size_bytes: int = 64 * MIB
    """The most unacknowledged bytes, including keys and `EVENT_OVERHEAD_BYTES` per event."""
    block_size_bytes: int = 256 * KIB
    """A block is full at this size before compression; under load, at up to four times as much."""
    blocks_in_flight_max: int = 8
    """The most blocks per segment that are sent and not acknowledged."""
    in_flight_bytes_max: int = 32 * MIB
    """The most bytes of all segments that are sent and not acknowledged; one larger block may be
    alone."""
    large_events: bool = False
    """Whether to take events over 8 MiB. Their readers must support them."""
    event_size_bytes_max: int = LARGE_EVENT_SIZE_BYTES_MAX
    """The largest event to take. Without `large_events`, the limit is at most 8 MiB."""
    retry_timeout_s: float = 60.0
    """The writer fails after so many seconds without any progress."""
    ack_timeout_s: float = 20.0
    """A connection that acknowledges nothing for so many seconds counts as lost."""
    compression: Literal["zstd"] | None = None
    """The codec of each block, unless compression makes that block larger. None: no compression."""
    compression_level: int = ZSTD_LEVEL_DEFAULT
    """The level of the codec; unused without `compression`."""

    def __post_init__(self) -> None:
        if self._least_size() < 1:
            raise InvalidSetting("a writer's sizes must be positive")
        if self.event_size_bytes_max > LARGE_EVENT_SIZE_BYTES_MAX:
            raise InvalidSetting(
                "a writer's events would be over the limit",
                event_size_bytes_max=self.event_size_bytes_max, limit=LARGE_EVENT_SIZE_BYTES_MAX,
            )  # fmt: skip
        if self.block_size_bytes > WRITER_BLOCK_SIZE_BYTES_MAX:
            raise InvalidSetting(
                "a writer's blocks would be over the limit",
                block_size_bytes=self.block_size_bytes, limit=WRITER_BLOCK_SIZE_BYTES_MAX,
            )  # fmt: skip
        if min(self.retry_timeout_s, self.ack_timeout_s) <= 0:
            raise InvalidSetting("a writer's timeouts must be positive")
        if self.compression not in (None, "zstd"):
            raise InvalidSetting("unknown compression codec", compression=self.compression)
        if not 1 <= self.compression_level <= ZSTD_LEVEL_MAX:
            raise InvalidSetting(
                "a compression level is out of range",
                level=self.compression_level, limit=ZSTD_LEVEL_MAX,
            )  # fmt: skip

    def _least_size(self) -> int:
        return min(
            self.buffer_size_bytes,
            self.block_size_bytes,
            self.blocks_in_flight_max,
            self.in_flight_bytes_max,
            self.event_size_bytes_max,
        )

    @property
    def event_limit_bytes(self) -> int:
        """The size of the largest event that the writer takes."""
        allowed = LARGE_EVENT_SIZE_BYTES_MAX if self.large_events else EVENT_SIZE_BYTES_MAX
        return min(allowed, self.event_size_bytes_max)

    @property
    def zstd_level(self) -> int | None:
        """The level to compress blocks with. None: blocks stay uncompressed."""
        return None if self.compression is None else self.compression_level


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings of a transaction.

    ::

        async with writer.transaction(TransactionSettings(lease_ms=60_000)) as txn:
            txn.write(b"21.5", key="boiler")

    Invariants, or InvalidSetting: the lease is 1 s to 10 min, `execution_ms_max` is at most a day,
    and timeouts are positive. The transaction lives at most `execution_ms_max`, however often the
    client pings. Lease, duration, label and the first two timeouts apply once it is long.
    """

    lease_ms: int = LEASE_MS_DEFAULT
    """The controller aborts the transaction if it receives no ping for so many milliseconds."""
    execution_ms_max: int = 0
    """The longest life of the transaction in milliseconds; 0 for the controller's usual limit."""
    writer: str = ""
    """A label that lists of transactions show."""
    auto_ping: bool = True
    """Whether the client pings until the transaction is closed; otherwise the application must."""
    begin_timeout_s: float = 30.0
    """The time limit in seconds to begin the transaction."""
    commit_timeout_s: float = COMMIT_TIMEOUT_S
    """The time limit in seconds of a commit after its flush, until readers see the events."""
    abort_timeout_s: float = ABORT_TIMEOUT_S
    """The time limit in seconds to ask for an abort."""
    short: bool = True
    """Whether a transaction that is entered with `async with` keeps its events until the commit and
    commits them by one request, to a store or to a controller, if that is possible. False: it is
    begun at once, so that it has an id which other processes can use."""

    def __post_init__(self) -> None:
        if not LEASE_MS_MIN <= self.lease_ms <= LEASE_MS_MAX:
            raise InvalidSetting(
                "a transaction's lease is out of range",
                lease_ms=self.lease_ms, least=LEASE_MS_MIN, limit=LEASE_MS_MAX,
            )  # fmt: skip
        if not 0 <= self.execution_ms_max <= EXECUTION_MS_MAX:
            raise InvalidSetting(
                "a transaction's maximum duration is out of range",
                execution_ms_max=self.execution_ms_max, limit=EXECUTION_MS_MAX,
            )  # fmt: skip
        if len(self.writer) > WRITER_LABEL_LENGTH_MAX:
            raise InvalidSetting(
                "a transaction's writer name is too long", limit=WRITER_LABEL_LENGTH_MAX
            )
        if min(self.begin_timeout_s, self.commit_timeout_s, self.abort_timeout_s) <= 0:
            raise InvalidSetting("a transaction's timeouts must be positive")


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The settings of a reader.

    `read_ahead_bytes` is divided evenly among the segments; each may exceed its share by one read.
    While it reads old events, the reader requests the next `read_size_bytes` as it verifies the
    last ones. At the tail, the store waits `wait_ms` before it answers without data. The reader
    fails after `retry_timeout_s` without an answer.

    `time_windows`: Arrow batches carry the window of event time of their events, by the stream's
    watermarks, which the reader then follows. `EventReader.time_window` works without it.

    ::

        settings = ReaderSettings(read_ahead_bytes=8 * 1024 * 1024)
        async with client.reader("plant/sensors", settings=settings) as reader:
            batch = await reader.next_batch()
    """

    read_ahead_bytes: int = 32 * MIB
    read_size_bytes: int = 2 * MIB
    wait_ms: int = 10_000
    retry_timeout_s: float = 60.0
    time_windows: bool = False

    def __post_init__(self) -> None:
        if min(self.read_ahead_bytes, self.read_size_bytes) < 1 or self.wait_ms < 0:
            raise InvalidSetting("a reader's sizes must be positive")
        if self.retry_timeout_s <= 0:
            raise InvalidSetting("a reader's timeouts must be positive")


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of an open key-value table.

    ::

        settings = TableSettings(retry_timeout_s=5)
        async with client.table("shop/stock", settings) as table:
            await table.put("apple", "5")

    Invariants, or InvalidSetting: sizes and counts are at least 1 and timeouts are positive;
    `requests_in_flight_max` is at most 8.
    """

    buffer_size_bytes: int = 16 * MIB
    """Calls wait while the updates without an answer, or the keys to look up, have more bytes."""
    requests_in_flight_max: int = 4
    """The most unanswered updates, and look-ups, of each partition. Later calls wait, and then
    travel together."""
    retry_timeout_s: float = 60.0
    """A call fails after so many seconds without an answer; a scan or watch, after so many seconds
    without any answer."""
    ack_timeout_s: float = 20.0
    """A connection that answers no update for so many seconds counts as lost."""
    page_size: int = 1000
    """The most entries that a scan reads at once from a partition."""
    read_ahead_bytes: int = 32 * MIB
    """About how many bytes a scan or watch reads ahead, in all partitions together."""
    wait_ms: int = 10_000
    """How long one read of a watch waits for a change before it asks again."""

    def __post_init__(self) -> None:
        sizes = (self.buffer_size_bytes, self.page_size, self.read_ahead_bytes, self.wait_ms)
        if min(sizes) < 1:
            raise InvalidSetting("a table's sizes must be positive")
        if not 1 <= self.requests_in_flight_max <= REQUESTS_IN_FLIGHT_MAX:
            raise InvalidSetting(
                "a table's requests in flight are out of range",
                requests_in_flight_max=self.requests_in_flight_max, limit=REQUESTS_IN_FLIGHT_MAX,
            )  # fmt: skip
        if min(self.retry_timeout_s, self.ack_timeout_s) <= 0:
            raise InvalidSetting("a table's timeouts must be positive")


@dataclass(frozen=True, slots=True)
class OneSegmentSettings:
    """The settings of revisioned streams and state synchronizers, which lie on one segment.

    `retry_timeout_s` limits a whole call, including the wait for its turn; `ack_timeout_s` limits
    one attempt. At most `appends_waiting_max` appends wait for their turn. One read asks for
    `read_size_bytes`.

    ::

        settings = OneSegmentSettings(retry_timeout_s=5)
        async with client.revisioned_stream("plant/log", settings) as log:
            await log.append([b"entry"])
    """

    retry_timeout_s: float = 60.0
    ack_timeout_s: float = 20.0
    appends_waiting_max: int = 1024
    read_size_bytes: int = 2 * MIB

    def __post_init__(self) -> None:
        if min(self.appends_waiting_max, self.read_size_bytes) < 1:
            raise InvalidSetting("sizes must be positive")
        if min(self.retry_timeout_s, self.ack_timeout_s) <= 0:
            raise InvalidSetting("timeouts must be positive")


@dataclass(frozen=True, slots=True)
class ByteStreamSettings(OneSegmentSettings):
    """The settings of a byte stream. It also has those of `OneSegmentSettings`.

    ::

        settings = ByteStreamSettings(buffer_size_bytes=1024 * 1024)
        async with client.byte_stream("plant/file", settings) as file:
            await file.write(b"bytes")

    Invariants, or InvalidSetting: sizes are at least 1, and `append_size_bytes` is at most the size
    of the largest block.
    """

    buffer_size_bytes: int = 8 * MIB
    """A write waits while more bytes than this are written and not stored; a write is taken whole.
    """
    append_size_bytes: int = MIB
    """The most bytes of one append."""

    def __post_init__(self) -> None:
        OneSegmentSettings.__post_init__(self)
        if min(self.buffer_size_bytes, self.append_size_bytes) < 1:
            raise InvalidSetting("a byte stream's sizes must be positive")
        if self.append_size_bytes > BLOCK_SIZE_BYTES_MAX:
            raise InvalidSetting(
                "a byte stream's appends would be over the limit",
                append_size_bytes=self.append_size_bytes, limit=BLOCK_SIZE_BYTES_MAX,
            )  # fmt: skip
