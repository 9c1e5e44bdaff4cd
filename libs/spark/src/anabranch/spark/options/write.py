"""The options of a write: Spark's texts → `WriteOptions`. Pure, but for an endpoints file.

A batch write and a streaming query have the same options, except that a query has no `version`: the
id of each micro-batch is the version.
"""

import re
from dataclasses import dataclass

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.model.stream import StreamConfig
from anabranch.common.model.topics import TopicName, topic_name
from anabranch.common.model.transaction import (
    APPLICATION_PATTERN,
    LEASE_MS_MAX,
    VERSION_MAX,
)
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.spark.options import creation
from anabranch.spark.options.creation import parse_creation
from anabranch.spark.options.places import NAMES as PLACES
from anabranch.spark.options.places import parse_cluster
from anabranch.spark.options.texts import Texts, number, refuse_unknown, switch

LEASE_S_DEFAULT = 300
COMMIT_TIMEOUT_S_DEFAULT = 120
OF_SPARK = ("checkpointlocation",)
"""Options that Spark hands to the sink although they are its own."""
NAMES = frozenset(
    (
        *PLACES, *creation.NAMES, "path", "stream", "topic", "exactly_once", "application",
        "version", "lease_s", "commit_timeout_s",
    )
)  # fmt: skip
_EXACTLY_ONCE_ALONE = ("application", "version", "lease_s", "commit_timeout_s")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one write, which Spark passes to its workers.

    `is_query`: it is of a streaming query, and not a batch write. `application` and `version`: the
    key of its transactions, if the user gave them. `lease_ms`: how
    long a transaction survives without a task that pings it. `create`: the configuration of the
    stream, if the write creates it when it is missing.
    """

    target: StreamRef | TopicName
    place: NatsTarget
    is_query: bool = False
    exactly_once: bool = True
    application: str | None = None
    version: int | None = None
    lease_ms: int = LEASE_S_DEFAULT * 1000
    commit_timeout_s: float = COMMIT_TIMEOUT_S_DEFAULT
    create: StreamConfig | None = None

    @property
    def stream(self) -> StreamRef:
        """The target of a write to a stream."""
        assert isinstance(self.target, StreamRef)
        return self.target


def parse_write(options: Texts, *, overwrite: bool, streaming: bool) -> WriteOptions:
    """Parse the options from Spark, whose names are in lower case.

    Raises Invalid errors, and Unavailable or Unauthorized for an endpoints file.
    """
    refuse_overwrite(overwrite, streaming=streaming)
    own = {name: text for name, text in options.items() if name not in OF_SPARK}
    refuse_unknown(own, NAMES)
    target = _target(own)
    exactly_once = switch("exactly_once", own.get("exactly_once"), default=True)
    _check_mode(own, target, exactly_once=exactly_once)
    application, version = _key(own, streaming=streaming)
    return WriteOptions(
        target=target,
        place=parse_cluster(own, "a write"),
        is_query=streaming,
        exactly_once=exactly_once,
        application=application,
        version=version,
        lease_ms=1000
        * number("lease_s", own.get("lease_s"), LEASE_S_DEFAULT, most=LEASE_MS_MAX // 1000),
        commit_timeout_s=number(
            "commit_timeout_s", own.get("commit_timeout_s"), COMMIT_TIMEOUT_S_DEFAULT
        ),
        create=parse_creation(own),
    )


def refuse_overwrite(overwrite: bool, *, streaming: bool) -> None:
    """Raises InvalidRequest: events are only added to a stream."""
    if overwrite:
        mode = 'outputMode("append")' if streaming else 'mode("append")'
        raise InvalidRequest(
            "a stream cannot be overwritten",
            remedy=f"use .{mode}; to drop earlier events, truncate the stream first",
        )


def _target(options: Texts) -> StreamRef | TopicName:
    named = {options[name] for name in ("stream", "path") if options.get(name)}
    topic = options.get("topic")
    if len(named) + bool(topic) != 1:
        raise InvalidRequest(
            "a write needs exactly one stream or topic",
            remedy='name it once: .save("scope/stream") or .start("scope/stream"), or give the '
            "option stream or topic",
        )
    return topic_name(topic) if topic else stream_ref(named.pop())


def _check_mode(options: Texts, target: StreamRef | TopicName, *, exactly_once: bool) -> None:
    """Raises InvalidRequest for options that contradict each other."""
    if not isinstance(target, StreamRef):
        if exactly_once:
            raise InvalidRequest(
                "a topic has no transactions, so that a write to it is not exactly once",
                remedy="add exactly_once=false, which may repeat records after a failure, or write "
                "to a stream",
            )
        for name in creation.NAMES:
            if name in options:
                raise InvalidRequest(
                    f"the option {name} is for a stream",
                    remedy="create the topic with `anabranch topic create`, and omit the option",
                )
    for name in () if exactly_once else _EXACTLY_ONCE_ALONE:
        if name in options:
            raise InvalidRequest(
                f"the option {name} is for exactly-once writes",
                remedy="omit it, or omit exactly_once=false",
            )


def _key(options: Texts, *, streaming: bool) -> tuple[str | None, int | None]:
    application, version = options.get("application"), options.get("version")
    if application is not None and re.fullmatch(APPLICATION_PATTERN, application) is None:
        raise InvalidRequest(
            "the option application is not understood",
            remedy="give 1 to 250 ASCII letters, digits, dots and hyphens", found=application[:80],
        )  # fmt: skip
    if streaming:
        if version is not None:
            raise InvalidRequest(
                "a streaming query has no option version",
                remedy="omit it; the id of each micro-batch is its version",
            )
        return application, None
    if (application is None) != (version is None):
        raise InvalidRequest(
            "a batch write needs both application and version, or neither",
            remedy="add the other option; the same pair is written once, versions only increase",
        )
    return application, None if version is None else _version(version)


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > VERSION_MAX:
        raise InvalidRequest(
            "the option version is not understood",
            remedy="give a whole number from 0", found=text[:80],
        )  # fmt: skip
    return int(text)
