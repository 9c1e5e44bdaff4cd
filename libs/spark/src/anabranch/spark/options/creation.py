"""The stream that a write creates, in the words of `anabranch stream create`. Pure.

The option names are those of the command: `segments`, or scaling by rate with `by_events` or
`by_kbytes`, `factor` and `min_segments`; `retain_time`, `retain_time_max`, `retain_size`,
`retain_size_max`; and `tags`, with commas between them.
"""

from collections.abc import Callable

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.quantities import duration_s, size_bytes
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
)
from anabranch.spark.options.texts import Texts, number, switch

SWITCH = "create_stream"
FACTOR_DEFAULT = 2
_SCALING = ("segments", "by_events", "by_kbytes", "factor", "min_segments")
_RETENTION = ("retain_time", "retain_time_max", "retain_size", "retain_size_max")
DETAILS = (*_SCALING, *_RETENTION, "tags")
NAMES = (SWITCH, *DETAILS)


def parse_creation(options: Texts) -> StreamConfig | None:
    """The configuration of the stream to create; None if the write creates none.

    Raises InvalidRequest.
    """
    given = [name for name in DETAILS if name in options]
    if switch(SWITCH, options.get(SWITCH), default=False):
        tags = (tag.strip() for tag in options.get("tags", "").split(","))
        return StreamConfig(
            scaling=_scaling(options),
            retention=_retention(options),
            tags=tuple(tag for tag in tags if tag),
        )
    if given:
        raise InvalidRequest(
            f"the option {given[0]} is for a stream that the write creates",
            remedy="add create_stream=true, or omit the option",
        )
    return None


def _scaling(options: Texts) -> ScalingPolicy:
    ways = [name for name in ("segments", "by_events", "by_kbytes") if name in options]
    if len(ways) > 1:
        raise _contradiction(*ways[:2])
    by_rate = ways if ways != ["segments"] else []
    if not by_rate:
        for name in ("factor", "min_segments"):
            if name in options:
                raise InvalidRequest(
                    f"the option {name} belongs to scaling by rate",
                    remedy="add by_events or by_kbytes",
                )
        return ScalingPolicy(min_segments=number("segments", options.get("segments"), 1))
    kind = ScalingType.EVENT_RATE if by_rate == ["by_events"] else ScalingType.BYTE_RATE
    return ScalingPolicy(
        type=kind,
        target_rate=number(by_rate[0], options[by_rate[0]], 1),
        scale_factor=number("factor", options.get("factor"), FACTOR_DEFAULT),
        min_segments=number("min_segments", options.get("min_segments"), 1),
    )


def _retention(options: Texts) -> RetentionPolicy | None:
    by_time = _bounds(options, "retain_time", lambda text: 1000 * duration_s(text))
    by_size = _bounds(options, "retain_size", size_bytes)
    if by_time is not None and by_size is not None:
        raise _contradiction("retain_time", "retain_size")
    if by_time is not None:
        return RetentionPolicy(RetentionType.TIME_MS, *by_time)
    return None if by_size is None else RetentionPolicy(RetentionType.SIZE_BYTES, *by_size)


def _bounds(
    options: Texts, name: str, amount: Callable[[str], int]
) -> tuple[int, int | None] | None:
    least, most = options.get(name), options.get(f"{name}_max")
    if least is None and most is None:
        return None
    upper = None if most is None else amount(most)
    lower = upper if least is None else amount(least)
    assert lower is not None
    return lower, upper


def _contradiction(one: str, other: str) -> InvalidRequest:
    return InvalidRequest(
        f"the options {one} and {other} contradict each other", remedy="omit one of them"
    )
