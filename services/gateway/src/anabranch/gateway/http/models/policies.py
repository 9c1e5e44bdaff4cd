"""A stream's configuration as Pravega writes it: scaling policy, retention policy, tags.

Answers state every configuration exactly, so that a caller can send it back. Where Pravega's units
are too coarse for that (days, hours and minutes; MiB), an additional field has the exact value:
`milliseconds`, `sizeBytes`, `maxSizeBytes`.
"""

from typing import Annotated, Literal

from pydantic import Field

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
)
from anabranch.gateway.http.models.answers import INT63, HttpBody

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MIB = 1024 * 1024

ScalingName = Literal[
    "FIXED_NUM_SEGMENTS", "BY_RATE_IN_KBYTES_PER_SEC", "BY_RATE_IN_EVENTS_PER_SEC"
]
RetentionName = Literal["LIMITED_DAYS", "LIMITED_SIZE_MB"]
Amount = Annotated[int, Field(ge=0, le=INT63)]

_SCALING: dict[ScalingName, ScalingType] = {
    "FIXED_NUM_SEGMENTS": ScalingType.FIXED,
    "BY_RATE_IN_KBYTES_PER_SEC": ScalingType.BYTE_RATE,
    "BY_RATE_IN_EVENTS_PER_SEC": ScalingType.EVENT_RATE,
}
_SCALING_NAMES = {kind: name for name, kind in _SCALING.items()}


class ScalingPolicyBody(HttpBody):
    """`targetRate` and `scaleFactor` have no meaning with a fixed number of segments."""

    type: ScalingName
    target_rate: Amount = 0
    scale_factor: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    min_segments: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1


class Period(HttpBody):
    """A time: the sum of its parts."""

    days: Amount = 0
    hours: Amount = 0
    minutes: Amount = 0
    milliseconds: Amount | None = None

    def in_ms(self) -> int:
        whole = self.days * DAY_MS + self.hours * HOUR_MS + self.minutes * MINUTE_MS
        return whole + (self.milliseconds or 0)


class RetentionPolicyBody(HttpBody):
    """The minimum that the stream keeps, and the maximum, if any.

    LIMITED_DAYS: `value` days, or `timeBasedRetention`. LIMITED_SIZE_MB: `value` MiB, or
    `sizeBytes`. The maximum likewise: 0 or none means that there is none.
    """

    type: RetentionName
    value: Amount = 0
    time_based_retention: Period | None = None
    size_bytes: Amount | None = None
    max_value: Amount | None = None
    max_time_based_retention: Period | None = None
    max_size_bytes: Amount | None = None


class ConfigBody(HttpBody):
    """The whole configuration of a stream; omitted fields have the defaults of a new stream."""

    scaling_policy: ScalingPolicyBody
    retention_policy: RetentionPolicyBody | None = None
    stream_tags: tuple[str, ...] = ()
    timestamp_aggregation_timeout: Amount = 0
    rollover_size_bytes: Amount = 0
    together: bool = False
    """All segments lie in one container, for short transactions over several of them. It is decided
    when the stream is created; an update keeps it."""

    def config(self) -> StreamConfig:
        """Raises InvalidRequest."""
        scaling, retention = self.scaling_policy, self.retention_policy
        is_fixed = scaling.type == "FIXED_NUM_SEGMENTS"
        return StreamConfig(
            scaling=ScalingPolicy(
                type=_SCALING[scaling.type],
                target_rate=0 if is_fixed else scaling.target_rate,
                scale_factor=0 if is_fixed else scaling.scale_factor,
                min_segments=scaling.min_segments,
            ),
            retention=None if retention is None else _retention(retention),
            tags=self.stream_tags,
            timestamp_aggregation_timeout_ms=self.timestamp_aggregation_timeout,
            rollover_size_bytes=self.rollover_size_bytes,
            together=self.together,
        )


def scaling_body(policy: ScalingPolicy) -> ScalingPolicyBody:
    """A scaling policy in an answer."""
    return ScalingPolicyBody.model_validate(
        {
            "type": _SCALING_NAMES[policy.type],
            "targetRate": policy.target_rate,
            "scaleFactor": policy.scale_factor,
            "minSegments": policy.min_segments,
        }
    )


def retention_body(policy: RetentionPolicy) -> RetentionPolicyBody:
    """A retention policy in an answer: `value` is 0 if it would not be a whole number."""
    least, most = policy.minimum, policy.maximum
    if policy.type is RetentionType.TIME_MS:
        told: dict[str, object] = {"type": "LIMITED_DAYS", **_time(least, "value", "time")}
        if most is not None:
            told |= _time(most, "maxValue", "maxTime")
    else:
        told = {"type": "LIMITED_SIZE_MB", **_size(least, "value", "sizeBytes")}
        if most is not None:
            told |= _size(most, "maxValue", "maxSizeBytes")
    return RetentionPolicyBody.model_validate(told)


def _time(ms: int, value: str, period: str) -> dict[str, object]:
    days, rest = divmod(ms, DAY_MS)
    hours, rest_of_day = divmod(rest, HOUR_MS)
    minutes, milliseconds = divmod(rest_of_day, MINUTE_MS)
    parts = {"days": days, "hours": hours, "minutes": minutes}
    if milliseconds:
        parts["milliseconds"] = milliseconds
    return {value: 0 if rest else days, f"{period}BasedRetention": parts}


def _size(size_bytes: int, value: str, exact: str) -> dict[str, object]:
    mib, rest = divmod(size_bytes, MIB)
    return {value: 0, exact: size_bytes} if rest else {value: mib}


def _retention(body: RetentionPolicyBody) -> RetentionPolicy:
    if body.type == "LIMITED_DAYS":
        _refuse_of_the_other(
            "LIMITED_DAYS", sizeBytes=body.size_bytes, maxSizeBytes=body.max_size_bytes
        )
        least = _one("value", body.value * DAY_MS, _ms(body.time_based_retention))
        most = _one("maxValue", (body.max_value or 0) * DAY_MS, _ms(body.max_time_based_retention))
        return RetentionPolicy(RetentionType.TIME_MS, least, most or None)
    _refuse_of_the_other(
        "LIMITED_SIZE_MB",
        timeBasedRetention=_ms(body.time_based_retention),
        maxTimeBasedRetention=_ms(body.max_time_based_retention),
    )
    least = _one("value", body.value * MIB, body.size_bytes or 0)
    most = _one("maxValue", (body.max_value or 0) * MIB, body.max_size_bytes or 0)
    return RetentionPolicy(RetentionType.SIZE_BYTES, least, most or None)


def _ms(period: Period | None) -> int:
    return 0 if period is None else period.in_ms()


def _one(field: str, coarse: int, exact: int) -> int:
    """The value of two fields for the same quantity, of which 0 means absent."""
    if coarse and exact and coarse != exact:
        raise InvalidRequest(
            f"retentionPolicy says two different things: {field}, and the same in other units",
            remedy="give the value once",
            field=field,
        )
    return coarse or exact


def _refuse_of_the_other(kind: str, **fields: int | None) -> None:
    for name, value in fields.items():
        if value:
            raise InvalidRequest(
                f"retentionPolicy of type {kind} has no {name}", remedy="omit it", field=name
            )
