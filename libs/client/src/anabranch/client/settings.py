"""How a writer or reader behaves: the only place of the client's defaults."""

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

KIB = 1024
MIB = 1024 * KIB
WRITER_BLOCK_SIZE_BYTES_MAX = BLOCK_SIZE_BYTES_MAX - EVENT_SIZE_BYTES_MAX - KEY_SIZE_BYTES_MAX - KIB
"""A block is closed by the event that reaches its size, and that one may be of any size."""
COMMIT_TIMEOUT_S = 60.0
ABORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class BackoffSettings:
    """Pauses between attempts: doubling from `first_s` to `longest_s`, half of it random."""

    first_s: float = 0.001
    longest_s: float = 0.5


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """`buffer_size_bytes` bounds what is buffered and unacknowledged, keys and a flat
    `EVENT_OVERHEAD_BYTES` per event included; `retry_timeout_s` bounds the time without any
    progress after which the writer gives up. A block is full at `block_size_bytes`, under
    load at up to four times that. `in_flight_bytes_max` bounds what is
    sent and not acknowledged, of all segments together (or one larger block by itself).
    `large_events` allows events over 8 MiB, up to `event_size_bytes_max` and to the buffer's
    size; their readers must know of them. `compression`: each block by itself, unless that
    makes it larger; `compression_level` is that of the codec."""

    buffer_size_bytes: int = 64 * MIB
    block_size_bytes: int = 256 * KIB
    blocks_in_flight_max: int = 8
    in_flight_bytes_max: int = 32 * MIB
    large_events: bool = False
    event_size_bytes_max: int = LARGE_EVENT_SIZE_BYTES_MAX
    retry_timeout_s: float = 60.0
    ack_timeout_s: float = 20.0
    compression: Literal["zstd"] | None = None
    compression_level: int = ZSTD_LEVEL_DEFAULT

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
        """The size of the largest event that is taken."""
        allowed = LARGE_EVENT_SIZE_BYTES_MAX if self.large_events else EVENT_SIZE_BYTES_MAX
        return min(allowed, self.event_size_bytes_max)

    @property
    def zstd_level(self) -> int | None:
        """The level to compress blocks with, None: they stay plain."""
        return None if self.compression is None else self.compression_level


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """`lease_ms`: a transaction that nobody pings for so long is aborted, 1 s to 10 min; with
    `auto_ping` the client pings as long as the transaction is not closed. `execution_ms_max`: how
    long it may live at all, 0 for the usual limit, at most a day. `writer` is shown to whoever
    lists transactions. `commit_timeout_s` bounds a commit after its flush, with the waiting until
    its events can be read; `begin_timeout_s` and `abort_timeout_s` the asking for these."""

    lease_ms: int = LEASE_MS_DEFAULT
    execution_ms_max: int = 0
    writer: str = ""
    auto_ping: bool = True
    begin_timeout_s: float = 30.0
    commit_timeout_s: float = COMMIT_TIMEOUT_S
    abort_timeout_s: float = ABORT_TIMEOUT_S

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
    """`read_ahead_bytes` is shared evenly by the segments; each may exceed its share by one
    read. While old events are read, one read of `read_size_bytes` is under way as the last one is
    verified. `wait_ms` is how long the store waits at the tail before it answers with nothing."""

    read_ahead_bytes: int = 32 * MIB
    read_size_bytes: int = 2 * MIB
    wait_ms: int = 10_000
    retry_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if min(self.read_ahead_bytes, self.read_size_bytes) < 1 or self.wait_ms < 0:
            raise InvalidSetting("a reader's sizes must be positive")
        if self.retry_timeout_s <= 0:
            raise InvalidSetting("a reader's timeouts must be positive")


@dataclass(frozen=True, slots=True)
class OneSegmentSettings:
    """Of what lies on a stream with one segment. `retry_timeout_s` bounds a call from its
    beginning, its turn included; `ack_timeout_s` bounds one attempt of it. At most
    `appends_waiting_max` appends wait for their turn; `read_size_bytes` is asked for at once."""

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
    """`buffer_size_bytes` is how much may be written and not stored before a write waits; a write
    is taken whole. `append_size_bytes` is the most that is stored at once."""

    buffer_size_bytes: int = 8 * MIB
    append_size_bytes: int = MIB

    def __post_init__(self) -> None:
        OneSegmentSettings.__post_init__(self)
        if min(self.buffer_size_bytes, self.append_size_bytes) < 1:
            raise InvalidSetting("a byte stream's sizes must be positive")
        if self.append_size_bytes > BLOCK_SIZE_BYTES_MAX:
            raise InvalidSetting(
                "a byte stream's appends would be over the limit",
                append_size_bytes=self.append_size_bytes, limit=BLOCK_SIZE_BYTES_MAX,
            )  # fmt: skip
