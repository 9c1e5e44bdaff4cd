"""The options that configure a stream, and the configuration that follows from them. Pure."""

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
    """What is not given stays as it is, or is as for a new stream."""

    segments: int | None = None
    "So many segments, for as long as nobody scales it."
    by_events: int | None = None
    "Scale so that a segment takes about so many events per second."
    by_kbytes: int | None = None
    "Scale so that a segment takes about so many KiB per second."
    factor: int | None = None
    "Split a segment that has too much into at most so many (2)."
    min: int | None = None
    "Never fewer segments than that."
    retain_time: str | None = None
    "Keep at least what is younger than that, e.g. 3d, 12h."
    retain_time_max: str | None = None
    "Keep nothing that is older than that."
    retain_size: str | None = None
    "Keep at least that much, e.g. 10GiB."
    retain_size_max: str | None = None
    "Keep no more than that."
    retain_all: Annotated[bool, Parameter(negative="")] = False
    "Keep everything."
    tag: Annotated[Sequence[str], Parameter(negative_iterable="")] = field(default_factory=tuple)
    "A tag to be found by; may be repeated. They replace those that the stream had."
    no_tags: Annotated[bool, Parameter(negative="")] = False
    "Take all tags away."
    aggregation_timeout: str | None = None
    "How long a silent writer holds the watermark back, e.g. 30s."
    rollover_size: str | None = None
    "Size of the store's objects, e.g. 1GiB."


def configured(config: StreamConfig, options: StreamOptions) -> StreamConfig:
    """The configuration as the options change it. Raises InvalidRequest."""
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
            raise _contradiction("--retain-all", "a bound of what is kept")
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
    """A bound that is not given stays, if the present policy is of this kind."""
    same = present if present is not None and present.type is kind else None
    minimum = least if least is not None else same.minimum if same else most
    assert minimum is not None
    return RetentionPolicy(kind, minimum, most if most is not None or not same else same.maximum)


def _contradiction(one: str, other: str) -> InvalidRequest:
    return InvalidRequest(
        f"{one} and {other} contradict each other", remedy="leave one of them out"
    )
