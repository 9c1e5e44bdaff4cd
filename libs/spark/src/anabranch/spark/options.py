"""The options of a read: parses Spark's text into `ReadOptions`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from anabranch.common.errors import AnabranchError, InvalidRequest
from anabranch.common.model.names import StreamName, StreamRef, stream_ref
from anabranch.common.model.topics import TOPIC_SCOPE, TopicName, topic_name
from anabranch.common.runtime.nats_target import NatsTarget, nats_target

MIB = 1024 * 1024
TARGET_PARTITION_BYTES = 64 * MIB
PARTITION_COUNT_MAX = 10_000

Positions = Mapping[str, tuple[int, int]]
"""Segment → (offset, index) of an event."""

Bound = Literal["head", "tail"] | Positions

_SOURCES = ("nats_url", "tier2")
_KNOWN = frozenset(
    (
        "path", "stream", "topic", "start", "end", "target_partition_bytes", "min_partitions",
        *_SOURCES,
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read, which Spark passes to its workers.

    `place` is a URL of tier 2, or the address of NATS. The read covers events from `start` on and
    before `end`. `min_partitions` None: as many as this machine has processors. `topic`: the read
    is of this topic, whose stream is to be found first; `stream` names no stream then.
    """

    stream: StreamRef
    source: Literal["nats_url", "tier2"]
    place: NatsTarget | str
    start: Bound = "head"
    end: Bound = "tail"
    target_partition_bytes: int = TARGET_PARTITION_BYTES
    min_partitions: int | None = None
    topic: TopicName | None = None


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options from Spark, whose names are in lower case. Raises Invalid errors, and
    Unavailable or Unauthorized for an endpoints file."""
    unknown = sorted(set(options) - _KNOWN)
    if unknown:
        raise InvalidRequest(
            f"there is no option {unknown[0]!r}", remedy=f"known are {', '.join(sorted(_KNOWN))}"
        )
    topic = _topic(options)
    source = _source(options)
    minimum = options.get("min_partitions")
    return ReadOptions(
        stream=StreamRef(TOPIC_SCOPE, StreamName(topic)) if topic else _stream(options),
        source=source,
        place=options[source] if source == "tier2" else nats_target(options[source]),
        start=_bound("start", options.get("start", "head")),
        end=_bound("end", options.get("end", "tail")),
        target_partition_bytes=_number(
            "target_partition_bytes", options.get("target_partition_bytes"), TARGET_PARTITION_BYTES
        ),
        min_partitions=None
        if minimum is None
        else _number("min_partitions", minimum, 1, most=PARTITION_COUNT_MAX),
        topic=topic,
    )


def _topic(options: Mapping[str, str]) -> TopicName | None:
    """The topic to read, if any. Raises InvalidName, InvalidRequest."""
    if not options.get("topic"):
        return None
    if options.get("stream") or options.get("path"):
        raise InvalidRequest(
            "the read names a stream and a topic", remedy="give the option topic alone"
        )
    return topic_name(options["topic"])


def _stream(options: Mapping[str, str]) -> StreamRef:
    named = {options[name] for name in ("stream", "path") if options.get(name)}
    if len(named) != 1:
        what = "the read names two streams" if named else "the read names no stream"
        raise InvalidRequest(
            what, remedy='name it once: .load("scope/stream"), or give the option topic'
        )
    return stream_ref(named.pop())


def _source(options: Mapping[str, str]) -> Literal["nats_url", "tier2"]:
    given = [name for name in _SOURCES if options.get(name)]
    if len(given) != 1:
        raise InvalidRequest(
            "a read needs exactly one source",
            remedy="give the option nats_url (from the stores; a URL or an endpoints file) or "
            "tier2 (a URL, such as file:///…)",
            given=", ".join(given) or "none",
        )
    return cast("Literal['nats_url', 'tier2']", given[0])


def _bound(name: str, text: str) -> Bound:
    if text in ("head", "tail"):
        return cast("Literal['head', 'tail']", text)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _bad_bound(name, text) from error
    if not isinstance(found, dict):
        raise _bad_bound(name, text)
    return {segment: _position(name, text, place) for segment, place in found.items()}


def _position(name: str, text: str, place: object) -> tuple[int, int]:
    match place:
        case [int(offset), int(index)] if (
            offset >= 0 and index >= 0 and not isinstance(offset, bool) | isinstance(index, bool)
        ):
            return offset, index
    raise _bad_bound(name, text)


def _bad_bound(name: str, text: str) -> AnabranchError:
    return InvalidRequest(
        f"the option {name} is not understood",
        remedy='give head, tail, or positions such as {"scope/stream/0.#epoch.0": [0, 0]}',
        found=text[:200],
    )


def _number(name: str, text: str | None, default: int, *, most: int | None = None) -> int:
    if text is None:
        return default
    digits = text.isascii() and text.isdigit()
    if not digits or int(text) < 1 or (most is not None and int(text) > most):
        upper = "" if most is None else f" of at most {most}"
        raise InvalidRequest(
            f"the option {name} is not understood",
            remedy=f"give a whole positive number{upper}", found=text[:200],
        )  # fmt: skip
    return int(text)
