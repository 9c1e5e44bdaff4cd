"""Which streams: the options `stream` (or the path), `streams`, `pattern`, `tag` and `topic`. Pure.

stream   scope/stream; .load("scope/stream") is the same
streams  several, with commas between them
pattern  a regular expression that the whole name, scope/stream, matches; `scope` may narrow it
tag      the streams of the option `scope` that carry the tag
topic    the name of a topic: its records are the events, and each segment is a partition
"""

import re
from dataclasses import dataclass

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import ScopeName, StreamRef, scope_name, stream_ref
from anabranch.common.model.topics import TopicName, topic_name
from anabranch.spark.options.texts import Texts

NAMES = ("path", "stream", "streams", "pattern", "tag", "topic", "scope")
STREAMS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Named:
    """These streams, each once, in the order in which they were named."""

    streams: tuple[StreamRef, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """All streams whose full name matches; of one scope, if one is given."""

    pattern: str
    scope: ScopeName | None = None

    def matches(self, stream: StreamRef) -> bool:
        """Whether the stream is one of these."""
        if self.scope is not None and stream.scope != self.scope:
            return False
        return re.fullmatch(self.pattern, str(stream)) is not None


@dataclass(frozen=True, slots=True)
class Tagged:
    """The streams of the scope that carry the tag."""

    scope: ScopeName
    tag: str


@dataclass(frozen=True, slots=True)
class OfTopic:
    """The stream of this topic."""

    topic: TopicName


Which = Named | Matching | Tagged | OfTopic


def parse_streams(options: Texts) -> Which:
    """Raises InvalidRequest unless the streams are named in exactly one way; InvalidName."""
    named = {options[name] for name in ("stream", "path") if options.get(name)}
    others = [name for name in ("streams", "pattern", "tag", "topic") if options.get(name)]
    if len(named) + len(others) != 1:
        raise _refusal(bool(named), others)
    scope = scope_name(options["scope"]) if options.get("scope") else None
    if scope is not None and others not in (["pattern"], ["tag"]):
        raise InvalidRequest(
            "the option scope goes with pattern or tag", remedy="omit scope, and name scope/stream"
        )
    match others:
        case []:
            return Named((stream_ref(named.pop()),))
        case ["streams"]:
            return _several(options["streams"])
        case ["topic"]:
            return OfTopic(topic_name(options["topic"]))
        case ["pattern"]:
            return Matching(_checked(options["pattern"]), scope)
    if scope is None:
        raise InvalidRequest("a tag is looked for in one scope", remedy="add the option scope")
    return Tagged(scope, options["tag"])


def _several(text: str) -> Named:
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    if not 1 <= len(names) <= STREAMS_MAX:
        raise InvalidRequest(
            "the option streams is not understood",
            remedy=f"give 1 to {STREAMS_MAX} names scope/stream with commas between them",
            found=text[:200],
        )
    return Named(tuple(stream_ref(name) for name in names))


def _checked(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(
            "the pattern is not a regular expression", remedy=str(error), found=pattern[:200]
        ) from error
    return pattern


def _refusal(is_named: bool, others: list[str]) -> InvalidRequest:
    if not is_named and not others:
        what = "the read names no stream"
    elif not others:
        what = "the read names two streams"
    elif others == ["topic"]:
        what = "the read names a stream and a topic"
    else:
        what = "the read names its streams in several ways"
    return InvalidRequest(
        what,
        remedy='name it once: .load("scope/stream"), or give one of the options stream, streams, '
        "pattern, tag and topic",
    )
