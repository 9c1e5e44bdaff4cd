"""The options that configure a reader group, and their effect on its configuration. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from anabranch.cli.commands.amounts import time_ms
from anabranch.client import GroupRetention, GroupStream, ReaderGroupConfig, SegmentPosition
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import SegmentId
from anabranch.common.model.reader_group import PositionCut


@Parameter(name="*")
@dataclass(frozen=True)
class GroupOptions:
    """Omitted options keep their present values, or the defaults of a new group."""

    stream: Annotated[Sequence[str], Parameter(negative_iterable="")] = field(default_factory=tuple)
    "A stream to read, named scope/stream; may be repeated."
    lease: str | None = None
    "A reader that is silent for this time loses its segments, e.g. 10s."
    automatic_checkpoint: str | None = None
    "The interval of automatic checkpoints, e.g. 30s; 0 for none."
    checkpoints_max: int | None = None
    "The maximum number of pending checkpoints."
    retention: Literal["none", "manual", "automatic"] | None = None
    "Whether the streams keep events until the group releases them: manually, or at checkpoints."
    release_after_checkpoint: bool | None = None
    "Give segments to other readers only right after a checkpoint."


def configured(config: ReaderGroupConfig | None, options: GroupOptions) -> ReaderGroupConfig:
    """The configuration changed by the options; None: a new group's. Raises InvalidRequest."""
    if options.stream:
        streams = tuple(GroupStream(name) for name in options.stream)
        config = ReaderGroupConfig(streams) if config is None else replace(config, streams=streams)
    if config is None:
        raise InvalidRequest("a reader group reads streams", remedy="name them by --stream")
    changes: dict[str, Any] = {
        "lease_ms": None if options.lease is None else time_ms(options.lease),
        "automatic_checkpoint_ms": _interval_ms(options.automatic_checkpoint),
        "checkpoints_max": options.checkpoints_max,
        "retention": None if options.retention is None else GroupRetention(options.retention),
        "release_after_checkpoint": options.release_after_checkpoint,
    }
    return replace(config, **{name: one for name, one in changes.items() if one is not None})


def started(config: ReaderGroupConfig, cuts: Mapping[str, PositionCut]) -> ReaderGroupConfig:
    """The configuration with these starts, by stream; an empty one is the head. Raises
    InvalidRequest.
    """
    unknown = cuts.keys() - {each.stream for each in config.streams}
    if unknown:
        raise InvalidRequest(
            "a cut is of a stream that the group does not read", stream=min(unknown)
        )
    streams = [replace(each, start=cuts.get(each.stream, each.start)) for each in config.streams]
    return replace(config, streams=tuple(streams))


def cuts_in(text: str) -> dict[str, PositionCut]:
    """Cuts from a file: the output of `group cuts --json` or `group checkpoint --json`."""
    try:
        found: Any = json.loads(text)
        cuts: Any = found.get("stream_cuts", found)
        return {
            str(stream): tuple(
                sorted(
                    SegmentPosition(SegmentId(int(number)), int(at["offset"]), at["event_index"])
                    for number, at in cut.items()
                )
            )
            for stream, cut in cuts.items()
        }
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise InvalidRequest(
            "the file holds no cuts",
            remedy="write it with `anabranch group cuts SCOPE/GROUP --json`",
        ) from error


def _interval_ms(text: str | None) -> int | None:
    if text is None:
        return None
    return 0 if text == "0" else time_ms(text)
