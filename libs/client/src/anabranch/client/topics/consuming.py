"""The part behind a consumer that opens the wanted partitions, and keeps the offsets of a name.

    begin ─► layouts of the topics ─► committed offsets ─► a place per partition ─► feed
    every COMMIT_S seconds ─► the offsets that were seen ─► commits

If anything is committed in a topic under the name, a partition without a committed offset is new,
and is read from its first record; otherwise `start` says where reading begins. So that this stays
true, the first commit stores an offset for every partition of the consumer.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from anabranch.client.backoff import Backoff
from anabranch.client.reading.intake import Intake
from anabranch.client.runtime import Runtime
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.client.topics.commits import AT_ONCE, Commits, consumer_name
from anabranch.client.topics.feed import Feed, Key, Track
from anabranch.client.topics.layout import PROVISION_WAIT_S, Layout, settled_layout
from anabranch.client.topics.offsets import Offset, Start, offset_of
from anabranch.client.topics.places import PartitionPlaces, Place
from anabranch.client.topics.records import RecordBatch
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane, SegmentDirectory
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.contracts.topics import ConsumerNamed, NameConsumer
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    PartitionNotFound,
    Retry,
    SegmentNotFound,
    TopicNotFound,
    Unknown,
)
from anabranch.common.model.topics import topic_name
from anabranch.common.workflow.bounded import for_each

COMMIT_S = 10.0
Partitions = Sequence[int] | Mapping[str, Sequence[int]] | None
"""Indexes for every topic, or by topic; None: all, and new ones."""
Committing = Literal["auto", "manual"] | None
Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The reading that a consumer asks for.

    `partitions`: by topic; None: all. `commit`: None without a `name`.
    """

    topics: tuple[str, ...]
    partitions: Mapping[str, tuple[int, ...]] | None
    start: Offset
    until_end: bool
    name: str | None
    commit: Committing


def wanted(
    topics: str | Sequence[str],
    *,
    partitions: Partitions,
    start: Start,
    until_end: bool,
    name: str | None,
    commit: Committing,
    isolation: Isolation,
) -> Wanted:
    """The meaning of the arguments. Raises InvalidName, InvalidRequest."""
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names or len(set(names)) < len(names):
        raise InvalidRequest("a consumer reads at least one topic, and none of them twice")
    for each in names:
        topic_name(each)
    if isolation not in ("read_committed", "read_uncommitted"):
        raise InvalidRequest(
            "the isolation is unknown",
            remedy="use read_committed or read_uncommitted, which are the same here",
            isolation=str(isolation)[:100],
        )
    if commit not in ("auto", "manual", None):
        raise InvalidRequest("commit is auto, manual or None", commit=str(commit)[:100])
    return Wanted(
        names,
        _by_topic(names, partitions),
        offset_of(start),
        until_end,
        None if name is None else consumer_name(name),
        None if name is None else commit,
    )


def _by_topic(topics: Iterable[str], given: Partitions) -> Mapping[str, tuple[int, ...]] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        given = dict.fromkeys(topics, given)
    if set(given) != set(topics) or not all(given.values()):
        raise InvalidRequest(
            "the partitions of each topic are missing",
            remedy="name at least one partition of every topic, or none at all",
        )
    return {topic: tuple(sorted(set(indexes))) for topic, indexes in given.items()}


class Consuming:
    """The open partitions of one consumer. `seen` returns the offsets to commit."""

    def __init__(
        self,
        wanted: Wanted,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: ReaderSettings,
        seen: Callable[[], Mapping[Key, int]],
    ) -> None:
        self._wanted = wanted
        self._control = control
        self._directory = directory
        self._runtime = runtime
        self._settings = settings
        self._seen = seen
        self._feed = Feed(Intake(control, directory, runtime, settings), self.calls)
        self._commits = None if wanted.name is None else Commits(wanted.name, self.calls, runtime)
        self._named = False
        self._committing: AnabranchError | None = None
        """The failure of the last automatic commit."""
        self._task: asyncio.Task[None] | None = None
        """Of the automatic commits."""
        self._closed = False

    @property
    def starts(self) -> Mapping[Key, int]:
        """(topic, partition) → the number of the first record to return."""
        return self._feed.starts

    def calls(self, segment: str) -> SegmentCalls:
        """The calls of one request to a segment."""
        runtime, settings = self._runtime, self._settings
        backoff = Backoff(BackoffSettings(), runtime.rng, settings.retry_timeout_s)
        return SegmentCalls(
            segment, directory=self._directory, clock=runtime.clock, backoff=backoff
        )

    async def close(self) -> None:
        """Stop reading and committing. Repeatable."""
        self._closed = True
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._feed.close()

    # --- beginning ------------------------------------------------------------------------

    async def begin(self) -> None:
        """Open the wanted partitions. May be repeated after an error.

        Raises TopicNotFound, TopicNotProvisioned, PartitionNotFound, InvalidRequest (a record
        number beyond the end), Unavailable.
        """
        layouts = [await self._layout(topic) for topic in self._wanted.topics]
        tracks = [track for layout in layouts for track in self._tracks(layout)]
        await self._directory.learn([track.segment for track in tracks])
        try:
            places = await self._places(tracks, await self._committed(tracks))
        except SegmentNotFound as error:
            raise TopicNotFound(
                "a topic was deleted", topic=", ".join(self._wanted.topics)[:200]
            ) from error
        if self._closed:
            return
        for track in tracks:
            self._feed.open(track, places[track.key], until_end=self._wanted.until_end)
        if self._wanted.partitions is None and not self._wanted.until_end:
            for layout in layouts:
                self._feed.open_rest(layout.rest, layout.name)
        if self._wanted.commit == "auto":
            self._task = self._runtime.start(self._commit_for_ever())

    async def _layout(self, topic: str) -> Layout:
        runtime = self._runtime
        backoff = Backoff(BackoffSettings(), runtime.rng, PROVISION_WAIT_S)
        return await settled_layout(self._control, topic, runtime.clock, backoff)

    def _tracks(self, layout: Layout) -> list[Track]:
        count = len(layout.segments)
        chosen = self._wanted.partitions
        indexes = range(count) if chosen is None else chosen[layout.name]
        for index in indexes:
            if not 0 <= index < count:
                raise PartitionNotFound(
                    "the topic has no such partition",
                    topic=layout.name, partition=index, partitions=count,
                )  # fmt: skip
        return [Track(layout.name, index, layout.segments[index]) for index in indexes]

    async def _committed(self, tracks: Iterable[Track]) -> Mapping[Key, int]:
        """The last records seen; -1 in partitions that are new since the first commit."""
        if self._commits is None:
            return {}
        segments = {track.key: track.segment for track in tracks}
        found = await self._commits.load(segments)
        topics = {topic for topic, _ in found}
        new = {key: -1 for key in segments if key[0] in topics}
        return {**new, **found}

    async def _places(
        self, tracks: Iterable[Track], committed: Mapping[Key, int]
    ) -> dict[Key, Place]:
        found: dict[Key, Place] = {}

        async def find(track: Track) -> None:
            places = PartitionPlaces(track.segment, track.topic, track.partition, self.calls)
            found[track.key] = await places.first(self._wanted.start, committed.get(track.key))

        await for_each(tracks, AT_ONCE, find)
        return found

    # --- reading --------------------------------------------------------------------------

    async def next(self) -> RecordBatch | None:
        """As `Feed.next`, but raises the failure of an automatic commit first."""
        batch = None if self._committing is not None else await self._feed.next()
        if batch is None and self._committing is not None:
            raise self._committing.copy()
        return batch

    def next_nowait(self) -> RecordBatch | None:
        """As `Feed.next_nowait`."""
        return self._feed.next_nowait()

    # --- committing -----------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Key, int]) -> None:
        """Store the numbers of the last records seen. Raises as `Commits.save`, PartitionNotFound,
        TopicNotFound."""
        commits = self._commits
        assert commits is not None
        for track in self._feed.tracks.values():
            commits.add(track.key, track.segment)
        for topic, partition in offsets:
            if (topic, partition) not in commits:
                raise PartitionNotFound(
                    "the consumer does not read the partition", topic=topic, partition=partition
                )
        try:
            await self._name()
            await commits.save(offsets)
        except SegmentNotFound as error:
            raise TopicNotFound(
                "a topic was deleted", topic=", ".join(self._wanted.topics)[:200]
            ) from error

    async def _name(self) -> None:
        """Note that the consumer commits offsets of its topics, so that they can be listed."""
        if self._named:
            return
        for topic in self._wanted.topics:
            query = NameConsumer(topic=topic, consumer=self._wanted.name or "")
            await self._control.query(
                "name_consumer", query, ConsumerNamed, timeout_s=QUERY_TIMEOUT_S
            )
        self._named = True

    async def _commit_for_ever(self) -> None:
        while not self._closed and self._committing is None:
            await self._runtime.clock.sleep(COMMIT_S)
            if self._closed:
                return
            try:
                await self.commit(self._seen())
            except (Retry, Unknown):
                continue  # the next commit stores later offsets anyway
            except AnabranchError as error:
                self._committing = error
                await self._feed.close()  # so that a call that waits for records ends
