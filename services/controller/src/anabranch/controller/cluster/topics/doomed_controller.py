"""Drives doomed backing streams to their end, and dooms those that no topic has.

Wakes on: dooms that come, folds of backing streams, the reconcile timer. Order: seal, delete,
forget the named consumers of the incarnation, forget the doom. The table is in
`domain/cluster/objects/dooming.py`.

A stream seems to be an orphan while its topic was not seen yet, so its topic is read from the
object store before it is doomed, and before a doom is forgotten.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from anabranch.common.contracts.objects import TOPIC
from anabranch.common.errors import InvalidName, RevisionConflict
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.names import StreamName
from anabranch.common.model.objects import TopicSpec, TopicStatus
from anabranch.common.model.topics import TopicName, is_backing, topic_of
from anabranch.common.runtime.clock import Clock
from anabranch.controller.cluster.objects.local_store import LocalStore
from anabranch.controller.cluster.topics.backing import AGAIN_S, Backing
from anabranch.controller.cluster.topics.doomed import DoomedStreams
from anabranch.controller.domain.cluster.objects import dooming
from anabranch.controller.domain.cluster.objects.backing import StreamView
from anabranch.controller.domain.cluster.objects.dooming import Doom

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoomedInputs:
    """The inputs of the controller.

    `backing_streams()`: the names of the streams in the scope of topics; `topic_store`,
    `consumers`: buckets; `ready()`: whether the event store has been seen.
    """

    doomed: DoomedStreams
    topics: LocalStore[TopicSpec, TopicStatus]
    topic_store: ObjectStore
    consumers: ObjectStore
    backing_streams: Callable[[], Iterable[str]]
    ready: Callable[[], bool]

    @property
    def complete(self) -> bool:
        """Whether all of it has been seen."""
        return self.doomed.complete and self.topics.listed and self.ready()


class DoomedController:
    """See the module."""

    def __init__(self, inputs: DoomedInputs, backing: Backing, clock: Clock) -> None:
        self._inputs = inputs
        self._backing = backing
        self._clock = clock
        self._is_orphans_turn = True
        """Whether orphans are looked for in the next step for which all inputs are known."""

    async def step(self, full: bool) -> float | None:
        """Perform the due commands. Raises Unavailable, OutcomeUnknown, Corrupt."""
        inputs = self._inputs
        self._is_orphans_turn |= full
        if not inputs.complete:
            return None
        if self._is_orphans_turn:
            for orphan in await self._orphans():
                await inputs.doomed.add(orphan)
            self._is_orphans_turn = False
        dooms = tuple(inputs.doomed.doomed.values())
        if not dooms:
            return None
        views = {
            doom.incarnation: self._backing.view(doom.topic, doom.incarnation) for doom in dooms
        }
        plan = dooming.reduce(dooms, views, now_ms=self._clock.now_ms())
        await self._backing.perform(plan.commands)
        topics_of = {doom.incarnation: TopicName(doom.topic) for doom in dooms}
        for incarnation in plan.forgotten:
            await self._forget(Doom(topics_of[incarnation], incarnation))
        return AGAIN_S

    async def _forget(self, doom: Doom) -> None:
        """Forget the doom whose stream is gone, unless its topic exists, also if unseen."""
        inputs = self._inputs
        if doom.incarnation in self._present() or doom.topic in inputs.topics.damaged:
            return  # the topic goes only while its stream is doomed
        if await self._has_topic(doom):
            return
        await self._forget_consumers(doom.incarnation)
        await inputs.doomed.forget(doom.incarnation)
        _log.info("a topic's stream is gone", incarnation=doom.incarnation)

    async def _orphans(self) -> list[Doom]:
        """The streams that no topic has, according to the object store."""
        inputs = self._inputs
        if inputs.topics.damaged:
            return []  # one of them may have the stream
        seeming = dooming.orphans(self._streams(), self._present(), inputs.doomed.incarnations)
        return [doom for doom in seeming if not await self._has_topic(doom)]

    def _present(self) -> set[str]:
        """The incarnations of all topics as last seen."""
        return {topic.incarnation for topic in self._inputs.topics.objects.values()}

    def _streams(self) -> dict[str, tuple[TopicName, StreamView]]:
        found: dict[str, tuple[TopicName, StreamView]] = {}
        for name in self._inputs.backing_streams():
            if not is_backing(name):
                continue
            try:
                topic, incarnation = topic_of(StreamName(name))
            except InvalidName:
                continue  # no topic controller made it
            found[incarnation] = topic, self._backing.view(topic, incarnation)
        return found

    async def _has_topic(self, doom: Doom) -> bool:
        stored = await self._inputs.topic_store.get(doom.topic)
        if stored is None or not stored.value:
            return False
        return TOPIC.from_stored(stored).incarnation == doom.incarnation

    async def _forget_consumers(self, incarnation: str) -> None:
        for stored in await self._inputs.consumers.list():
            if stored.key.startswith(f"{incarnation}."):
                try:
                    await self._inputs.consumers.delete(stored.key, stored.revision)
                except RevisionConflict:
                    continue  # its client forgot it
