"""The gateway's settings, from the environment: ``ANABRANCH_GATEWAY_…``."""

from typing import Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from anabranch.common.runtime.settings import NatsSettings, TelemetryTarget

KIB = 1024
MIB = 1024 * KIB


class Settings(NatsSettings):
    """What can be set. A password in a URL is the only secret; `describe` and `repr` mask it."""

    model_config = SettingsConfigDict(env_prefix="ANABRANCH_GATEWAY_")

    nats_url: str = "nats://127.0.0.1:4222"
    bind: str = "127.0.0.1:8080"
    """Where HTTP is served, as host:port."""
    health_bind: str = "127.0.0.1:0"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    trace_ratio: float = Field(default=1.0, ge=0.0, le=1.0)
    """The share of requests to trace, of those that bring no trace of their own."""

    connections_max: int = Field(default=800, ge=1)
    """HTTP connections at once; one more is refused with 503."""
    connections_per_peer_max: int = Field(default=256, ge=1)
    """Of one IPv4 address or IPv6 /64 network; one more is refused with 429. Behind a proxy, all
    connections are the proxy's."""
    header_timeout_s: float = Field(default=10.0, gt=0)
    """How long a caller may take to send a request's headers."""
    keep_alive_s: float = Field(default=30.0, gt=0)
    """A connection that is idle for so long after an answer is closed."""

    body_size_bytes_max: int = Field(default=16 * MIB, ge=KIB)
    """A larger request body is refused with 413."""
    body_events_max: int = Field(default=100_000, ge=1)
    requests_max: int = Field(default=512, ge=1)
    """Requests being answered at once; one more is refused with 503."""
    pending_size_bytes_max: int = Field(default=128 * MIB, ge=KIB)
    """Request bodies being received, and separately events being stored, at once."""
    request_timeout_s: float = Field(default=30.0, gt=0)
    """How long a command, or the storing or reading of a request's events, may take."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """How long a caller may take to send a body."""
    wait_s_max: float = Field(default=30.0, ge=0)
    """The longest `wait` of a long-poll."""
    writers_max: int = Field(default=256, ge=1)
    """Streams and transactions with an open writer at once."""
    writer_idle_s: float = Field(default=60.0, gt=0)
    """A writer that nobody used for so long is closed."""
    tunnels_max: int = Field(default=512, ge=1)
    """Connections of clients to segment stores through the gateway at once; one more is refused
    with 503."""
    readers_max: int = Field(default=64, ge=1)
    """Reads at once, long-polls included."""
    read_size_bytes_max: int = Field(default=8 * MIB, ge=1)
    """An answer ends with the event that reaches it."""
    group_readers_max: int = Field(default=64, ge=1)
    """Readers of reader groups that the gateway holds for its callers, parked ones included."""
    unacknowledged_events_max: int = Field(default=1000, ge=1)
    """Of one such reader: sent, and not acknowledged."""
    unacknowledged_size_bytes_max: int = Field(default=8 * MIB, ge=1)
    reader_grace_s: float = Field(default=10.0, ge=0)
    """How long a caller may be gone until its reader leaves the group."""
    ack_wait_s: float = Field(default=30.0, gt=0)
    """An answer ends when nothing was sent, taken or acknowledged for so long, and something
    is unacknowledged."""
    heartbeat_s: float = Field(default=10.0, gt=0)
    """An answer that goes on shows a sign of life that often."""
    answers_max: int = Field(default=10_000, ge=1)
    """Answers remembered by their Idempotency-Key."""
    answer_age_s_max: float = Field(default=86_400.0, gt=0)

    @property
    def telemetry(self) -> TelemetryTarget:
        return TelemetryTarget(self.otlp_endpoint, self.trace_ratio)
