"""The end of backing streams whose topics are deleted. Pure and level-triggered.

    doomed stream        due
    absent               nothing for a while, because its creation may be under way; then forget
    creating, deleting   nothing yet
    active               seal it
    sealed               delete it
    deleted              forget the doom

A stream without a topic and without a doom is an *orphan*: its creation was decided after its doom
was forgotten. It may also only seem to be one, because the topics are seen with a delay. A shell
therefore reads the topic from the object store before it dooms an orphan.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from anabranch.common.contracts.objects import Doomed
from anabranch.common.model.topics import TopicName
from anabranch.controller.domain.cluster.objects.backing import (
    ABSENT,
    BackingCommand,
    BackingState,
    DeleteBacking,
    SealBacking,
    StreamView,
)

FORGET_ABSENT_MS = 60_000
"""How long a doomed stream must be unknown before its doom is forgotten."""


@dataclass(frozen=True, slots=True)
class Doom:
    """Store a `Doomed` for the incarnation; already stored is success."""

    topic: TopicName
    incarnation: str


@dataclass(frozen=True, slots=True)
class DoomedPlan:
    """`forgotten`: the incarnations whose `Doomed` is deleted."""

    commands: tuple[BackingCommand, ...] = ()
    forgotten: tuple[str, ...] = ()


def reduce(
    doomed: Iterable[Doomed], streams: Mapping[str, StreamView], *, now_ms: int
) -> DoomedPlan:
    """The due commands, and the dooms that have served. `streams`: by incarnation."""
    commands: list[BackingCommand] = []
    forgotten: list[str] = []
    for doom in doomed:
        topic, incarnation = TopicName(doom.topic), doom.incarnation
        match streams.get(incarnation, ABSENT).state:
            case BackingState.ACTIVE:
                commands.append(SealBacking(topic, incarnation))
            case BackingState.SEALED:
                commands.append(DeleteBacking(topic, incarnation))
            case BackingState.DELETED:
                forgotten.append(incarnation)
            case BackingState.ABSENT if now_ms - doom.since_ms >= FORGET_ABSENT_MS:
                forgotten.append(incarnation)
            case BackingState.ABSENT | BackingState.CREATING | BackingState.DELETING:
                pass
    return DoomedPlan(tuple(commands), tuple(forgotten))


def orphans(
    streams: Mapping[str, tuple[TopicName, StreamView]],
    topics: Collection[str],
    doomed: Collection[str],
) -> tuple[Doom, ...]:
    """The streams, by incarnation, that seem to have no topic.

    `topics`: the incarnations of all topics. `doomed`: those of all dooms.
    """
    return tuple(
        Doom(topic, incarnation)
        for incarnation, (topic, view) in sorted(streams.items())
        if incarnation not in topics
        and incarnation not in doomed
        and view.state not in (BackingState.ABSENT, BackingState.DELETED)
    )
