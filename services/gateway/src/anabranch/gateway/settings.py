"""The gateway's settings, from the environment: ``ANABRANCH_GATEWAY_…``."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from anabranch.common.runtime.settings import NatsSettings, TelemetryTarget

KIB = 1024
MIB = 1024 * KIB


class Settings(NatsSettings):
    """The settings. A password in a URL is the only secret; `describe` and `repr` mask it."""

    model_config = SettingsConfigDict(env_prefix="ANABRANCH_GATEWAY_")

    nats_url: str = "nats://127.0.0.1:4222"
    bind: str = "127.0.0.1:8080"
    """The address at which the gateway serves HTTP, as host:port."""
    health_bind: str = "127.0.0.1:0"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    trace_ratio: float = Field(default=1.0, ge=0.0, le=1.0)
    """The traced share of the requests without a `traceparent`."""

    connections_max: int = Field(default=800, ge=1)
    """Concurrent HTTP connections; the gateway refuses further ones with 503."""
    connections_per_peer_max: int = Field(default=256, ge=1)
    """Concurrent connections of one IPv4 address or IPv6 /64 network; the gateway refuses further
    ones with 429. Behind a proxy, all connections are the proxy's."""
    header_timeout_s: float = Field(default=10.0, gt=0)
    """How long a caller may take to send a request's headers."""
    keep_alive_s: float = Field(default=30.0, gt=0)
    """How long a connection may be idle after an answer before the gateway closes it."""

    body_size_bytes_max: int = Field(default=16 * MIB, ge=KIB)
    """The largest request body; the gateway refuses a larger one with 413."""
    body_events_max: int = Field(default=100_000, ge=1)
    requests_max: int = Field(default=512, ge=1)
    """Concurrent requests; the gateway refuses further ones with 503."""
    pending_size_bytes_max: int = Field(default=128 * MIB, ge=KIB)
    """The bytes of request bodies in reception, and separately of events and entries in storage, at
    once."""
    request_timeout_s: float = Field(default=30.0, gt=0)
    """How long a command, or the storing or reading of a request's events, may take."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """How long a caller may take to send a body."""
    wait_s_max: float = Field(default=30.0, ge=0)
    """The longest `wait` of a long-poll."""
    writers_max: int = Field(default=256, ge=1)
    """Concurrently open writers of streams and transactions."""
    writer_idle_s: float = Field(default=60.0, gt=0)
    """How long a writer or an open table may be unused before the gateway closes it."""
    tables_max: int = Field(default=256, ge=1)
    """Concurrently open key-value tables."""
    table_age_s_max: float = Field(default=60.0, gt=0)
    """How long later requests share an open table; a changed time to live counts after that."""
    tunnels_max: int = Field(default=512, ge=1)
    """Concurrent tunnels of clients to segment stores; the gateway refuses further ones with
    503."""
    readers_max: int = Field(default=64, ge=1)
    """Concurrent reads of events, and scans, look-ups and watches of entries; long-polls
    included."""
    read_size_bytes_max: int = Field(default=8 * MIB, ge=1)
    """The size at which an answer ends; the event or entry that reaches it is the last one."""
    group_readers_max: int = Field(default=64, ge=1)
    """Readers of reader groups that the gateway holds for its callers, parked ones included."""
    unacknowledged_events_max: int = Field(default=1000, ge=1)
    """The events of one such reader that the gateway has sent and that are not acknowledged."""
    unacknowledged_size_bytes_max: int = Field(default=8 * MIB, ge=1)
    reader_grace_s: float = Field(default=10.0, ge=0)
    """How long a caller may be gone before its reader leaves the group."""
    ack_wait_s: float = Field(default=30.0, gt=0)
    """While events are unacknowledged, an answer ends after this time without an event sent, taken
    or acknowledged."""
    heartbeat_s: float = Field(default=10.0, gt=0)
    """The interval of heartbeats in an unfinished answer."""
    answers_max: int = Field(default=10_000, ge=1)
    """Answers remembered by their Idempotency-Key."""
    answer_age_s_max: float = Field(default=86_400.0, gt=0)

    @property
    def telemetry(self) -> TelemetryTarget:
        return TelemetryTarget(self.otlp_endpoint, self.trace_ratio)
