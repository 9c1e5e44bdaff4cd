"""The options that configure a stream, and their effect on its configuration. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.commands.amounts import size_bytes, time_ms
from anabranch.client import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
)
from anabranch.common.errors import InvalidRequest

FACTOR_DEFAULT = 2


@Parameter(name="*")
@dataclass(frozen=True)
class StreamOptions:
    """Omitted options keep their present values, or the defaults of a new stream."""

    segments: int | None = None
    "The number of segments, until a manual scale changes it."
    by_events: int | None = None
    "Scale to about this many events per second and segment."
    by_kbytes: int | None = None
    "Scale to about this many KiB per second and segment."
    factor: int | None = None
    "The maximum number of segments into which one scale splits a hot segment (2)."
    min: int | None = None
    "The minimum number of segments."
    retain_time: str | None = None
    "Keep at least the events of this time, e.g. 3d, 12h."
    retain_time_max: str | None = None
    "Keep no events older than this."
    retain_size: str | None = None
    "Keep at least this much, e.g. 10GiB."
    retain_size_max: str | None = None
    "Keep no more than this."
    retain_all: Annotated[bool, Parameter(negative="")] = False
    "Keep all events."
    tag: Annotated[Sequence[str], Parameter(negative_iterable="")] = field(default_factory=tuple)
    "A tag, for searches; may be repeated. The given tags replace the present ones."
    no_tags: Annotated[bool, Parameter(negative="")] = False
    "Remove all tags."
    aggregation_timeout: str | None = None
    "The time for which a silent writer holds the watermark back, e.g. 30s."
    rollover_size: str | None = None
    "Size of the store's objects, e.g. 1GiB."
    together: Annotated[bool, Parameter(negative="")] = False
    "Keep all segments in one container, for short transactions over several of them; for ever."


def configured(config: StreamConfig, options: StreamOptions) -> StreamConfig:
    """The configuration changed by the options. Raises InvalidRequest."""
    if options.tag and options.no_tags:
        raise _contradiction("--tag", "--no-tags")
    changed = replace(
        config, scaling=_scaling(config.scaling, options), retention=_retention(config, options)
    )
    if options.tag or options.no_tags:
        changed = replace(changed, tags=tuple(options.tag))
    if options.aggregation_timeout is not None:
        timeout_ms = time_ms(options.aggregation_timeout)
        changed = replace(changed, timestamp_aggregation_timeout_ms=timeout_ms)
    if options.rollover_size is not None:
        changed = replace(changed, rollover_size_bytes=size_bytes(options.rollover_size))
    if options.together:
        changed = replace(changed, together=True)
    return changed


def described(config: StreamConfig) -> dict[str, object]:
    """The configuration as fields."""
    scaling, retention = config.scaling, config.retention
    told: dict[str, object] = {"scaling": scaling.type.value, "min_segments": scaling.min_segments}
    if scaling.type is not ScalingType.FIXED:
        told |= {"target_rate": scaling.target_rate, "scale_factor": scaling.scale_factor}
    if retention is not None:
        kind, _, unit = retention.type.value.partition("_")
        told |= {"retention": kind, f"retention_min_{unit}": retention.minimum}
        if retention.maximum is not None:
            told[f"retention_max_{unit}"] = retention.maximum
    return told | {
        "tags": list(config.tags),
        "timestamp_aggregation_timeout_ms": config.timestamp_aggregation_timeout_ms,
        "rollover_size_bytes": config.rollover_size_bytes,
        "together": config.together,
    }


def _scaling(present: ScalingPolicy, options: StreamOptions) -> ScalingPolicy:
    given = [
        (name, value)
        for name, value in (
            ("--segments", options.segments),
            ("--by-events", options.by_events),
            ("--by-kbytes", options.by_kbytes),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise _contradiction(given[0][0], given[1][0])
    if options.segments is not None:
        if options.factor is not None or options.min is not None:
            raise _contradiction("--segments", "--factor and --min")
        return ScalingPolicy(min_segments=options.segments)
    kind, rate = present.type, present.target_rate
    if options.by_events is not None:
        kind, rate = ScalingType.EVENT_RATE, options.by_events
    elif options.by_kbytes is not None:
        kind, rate = ScalingType.BYTE_RATE, options.by_kbytes
    elif kind is ScalingType.FIXED and (options.factor or options.min) is not None:
        raise InvalidRequest(
            "--factor and --min belong to scaling by rate", remedy="add --by-events or --by-kbytes"
        )
    factor = present.scale_factor or FACTOR_DEFAULT if kind is not ScalingType.FIXED else 0
    return ScalingPolicy(
        type=kind,
        target_rate=rate,
        scale_factor=factor if options.factor is None else options.factor,
        min_segments=present.min_segments if options.min is None else options.min,
    )


def _retention(config: StreamConfig, options: StreamOptions) -> RetentionPolicy | None:
    by_time = options.retain_time, options.retain_time_max
    by_size = options.retain_size, options.retain_size_max
    if any(by_time) and any(by_size):
        raise _contradiction("--retain-time", "--retain-size")
    if options.retain_all:
        if any(by_time) or any(by_size):
            raise _contradiction("--retain-all", "a limit of retention")
        return None
    if any(by_time):
        bounds = [None if text is None else time_ms(text) for text in by_time]
        return _bounded(config.retention, RetentionType.TIME_MS, bounds[0], bounds[1])
    if any(by_size):
        bounds = [None if text is None else size_bytes(text) for text in by_size]
        return _bounded(config.retention, RetentionType.SIZE_BYTES, bounds[0], bounds[1])
    return config.retention


def _bounded(
    present: RetentionPolicy | None, kind: RetentionType, least: int | None, most: int | None
) -> RetentionPolicy:
    """An omitted bound keeps its value if the present policy has the same type."""
    same = present if present is not None and present.type is kind else None
    minimum = least if least is not None else same.minimum if same else most
    assert minimum is not None
    return RetentionPolicy(kind, minimum, most if most is not None or not same else same.maximum)


def _contradiction(one: str, other: str) -> InvalidRequest:
    return InvalidRequest(f"{one} and {other} contradict each other", remedy="omit one of them")
