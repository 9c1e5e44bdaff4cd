"""The doomed backing streams: those whose topics are deleted, until the streams are gone, too.

Owns: the dooms as last seen by the watch of their bucket, or written here. A doom is stored before
anything of its topic is deleted, so that a controller that dies in between leaves no stream behind.
"""

from collections.abc import Callable, Mapping

import structlog

from anabranch.common.contracts.objects import Doomed, record_from
from anabranch.common.errors import Corrupt, ObjectExists, Retry, RevisionConflict
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.cluster.objects.dooming import Doom

RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class DoomedStreams:
    """The dooms as far as this controller knows."""

    def __init__(self, objects: ObjectStore, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock
        self._doomed: dict[str, Doomed] = {}
        self._unreadable: set[str] = set()
        self._listed = False
        self._listeners: list[Callable[[], None]] = []
        self._gone_listeners: list[Callable[[str], None]] = []

    @property
    def doomed(self) -> Mapping[str, Doomed]:
        """The dooms that can be read, by incarnation."""
        return self._doomed

    @property
    def incarnations(self) -> frozenset[str]:
        """The incarnations with a doom, also those whose dooms cannot be read."""
        return frozenset({*self._doomed, *self._unreadable})

    @property
    def complete(self) -> bool:
        """Whether every stored doom has been seen."""
        return self._listed

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a doom comes or goes."""
        self._listeners.append(listener)

    def on_gone(self, listener: Callable[[str], None]) -> None:
        """Call `listener(incarnation)` whenever a stream is gone, and its doom with it."""
        self._gone_listeners.append(listener)

    async def add(self, doom: Doom) -> None:
        """Store the doom; already stored is success. Raises Unavailable, OutcomeUnknown."""
        found = Doomed(
            topic=doom.topic, incarnation=doom.incarnation, since_ms=self._clock.now_ms()
        )
        try:
            await self._objects.create(doom.incarnation, found.to_bytes())
        except ObjectExists:
            return  # the watch shows it
        self._doomed[doom.incarnation] = found
        _log.info("a topic's stream is doomed", topic=doom.topic, incarnation=doom.incarnation)

    async def forget(self, incarnation: str) -> None:
        """Delete the doom; already deleted is success. Raises Unavailable, OutcomeUnknown."""
        found = await self._objects.get(incarnation)
        if found is not None:
            try:
                await self._objects.delete(incarnation, found.revision)
            except RevisionConflict:
                return  # another controller was faster
        self._doomed.pop(incarnation, None)

    async def serve(self) -> None:
        """Watch the dooms until cancelled."""
        while True:
            try:
                async for found in self._objects.watch():
                    if found is None:
                        self._listed = True
                    else:
                        self._learn(found)
                    for listener in self._listeners:
                        listener()
            except Retry as error:
                _log.warning("the watch of doomed streams was interrupted", error=str(error))
            await self._clock.sleep(RETRY_S)

    def _learn(self, found: StoredObject) -> None:
        self._unreadable.discard(found.key)
        if not found.value:
            self._doomed.pop(found.key, None)
            for listener in self._gone_listeners:
                listener(found.key)
            return
        try:
            self._doomed[found.key] = record_from(Doomed, found)
        except Corrupt as error:
            self._doomed.pop(found.key, None)
            self._unreadable.add(found.key)
            remedy = error.remedy_for("command")
            _log.error("a doom cannot be read", key=found.key, error=str(error), remedy=remedy)
