"""A stream's configuration as the gateway takes and tells it, which is as Pravega does. Pure.

It is sent in the gateway's finest units, so that it is kept exactly.
"""

from collections.abc import Mapping

import msgspec

from anabranch.client import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
)

MIB = 1024 * 1024
_SCALING = {
    ScalingType.FIXED: "FIXED_NUM_SEGMENTS",
    ScalingType.BYTE_RATE: "BY_RATE_IN_KBYTES_PER_SEC",
    ScalingType.EVENT_RATE: "BY_RATE_IN_EVENTS_PER_SEC",
}
_SCALING_TYPES = {name: kind for kind, name in _SCALING.items()}


class ScalingTold(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    target_rate: int
    scale_factor: int
    min_segments: int


class PeriodTold(msgspec.Struct, frozen=True, rename="camel"):
    days: int = 0
    hours: int = 0
    minutes: int = 0
    milliseconds: int = 0

    def in_ms(self) -> int:
        minutes = (self.days * 24 + self.hours) * 60 + self.minutes
        return minutes * 60_000 + self.milliseconds


class RetentionTold(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    value: int = 0
    time_based_retention: PeriodTold | None = None
    size_bytes: int = 0
    max_value: int = 0
    max_time_based_retention: PeriodTold | None = None
    max_size_bytes: int = 0


class ConfigTold(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a stream's properties that is its configuration."""

    scaling_policy: ScalingTold
    retention_policy: RetentionTold | None = None
    tags: tuple[str, ...] = ()
    timestamp_aggregation_timeout: int = 0
    rollover_size_bytes: int = 0


def config_body(config: StreamConfig) -> Mapping[str, object]:
    """What is sent to create or to update a stream."""
    scaling = config.scaling
    body: dict[str, object] = {
        "scalingPolicy": {
            "type": _SCALING[scaling.type],
            "targetRate": scaling.target_rate,
            "scaleFactor": scaling.scale_factor,
            "minSegments": scaling.min_segments,
        },
        "streamTags": list(config.tags),
        "timestampAggregationTimeout": config.timestamp_aggregation_timeout_ms,
        "rolloverSizeBytes": config.rollover_size_bytes,
    }
    if config.retention is not None:
        body["retentionPolicy"] = _retention_body(config.retention)
    return body


def config_of(told: ConfigTold) -> StreamConfig:
    """Inverse of `config_body`, of what the gateway tells."""
    scaling, retention = told.scaling_policy, told.retention_policy
    return StreamConfig(
        scaling=ScalingPolicy(
            type=_SCALING_TYPES[scaling.type],
            target_rate=scaling.target_rate,
            scale_factor=scaling.scale_factor,
            min_segments=scaling.min_segments,
        ),
        retention=None if retention is None else _retention(retention),
        tags=told.tags,
        timestamp_aggregation_timeout_ms=told.timestamp_aggregation_timeout,
        rollover_size_bytes=told.rollover_size_bytes,
    )


def _retention_body(policy: RetentionPolicy) -> Mapping[str, object]:
    least, most = policy.minimum, policy.maximum or 0
    if policy.type is RetentionType.SIZE_BYTES:
        return {"type": "LIMITED_SIZE_MB", "sizeBytes": least, "maxSizeBytes": most}
    return {
        "type": "LIMITED_DAYS",
        "timeBasedRetention": {"milliseconds": least},
        "maxTimeBasedRetention": {"milliseconds": most},
    }


def _retention(told: RetentionTold) -> RetentionPolicy:
    if told.type == "LIMITED_SIZE_MB":
        least = told.size_bytes or told.value * MIB
        most = told.max_size_bytes or told.max_value * MIB
        return RetentionPolicy(RetentionType.SIZE_BYTES, least, most or None)
    period, longest = told.time_based_retention, told.max_time_based_retention
    least = PeriodTold(days=told.value).in_ms() if period is None else period.in_ms()
    most = 0 if longest is None else longest.in_ms()
    return RetentionPolicy(RetentionType.TIME_MS, least, most or None)
