"""Topics on the fake controller and the fake store: partitions, record numbers, named consumers.

The controller provisions a topic at once: its backing stream has a segment per partition, and the
rest segment. The store also locates events by number and updates attributes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from anabranch.client import Client, Record
from anabranch.common.contracts import topics as t
from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.queries import Query, QueryFailed
from anabranch.common.errors import (
    AnabranchError,
    AttributeMismatch,
    RecordEvicted,
    TooManyAttributes,
    TopicExists,
    TopicNotFound,
    WriterExpired,
)
from anabranch.common.model.names import StreamRef, segment_id
from anabranch.common.model.objects import (
    Compression,
    Computed,
    PartitionResolution,
    TopicResolution,
    TopicSpec,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import (
    TOPIC_SCOPE,
    backing_stream,
    partition_keys,
    rest_keys,
    segment_number,
    topic_name,
)
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import (
    Appended,
    AppendOnce,
    EventLocated,
    GetSegmentInfo,
    LocateEvent,
    Message,
    SegmentInfo,
    UpdateAttributes,
)
from kit.client_bench import CONNECTION
from kit.fake_control_plane import FakeControlPlane
from kit.fake_controller import FakeController
from kit.fake_segment import FakeSegment
from kit.fake_segstore import FakeConnection, FakeSegmentStore
from kit.fake_streams import FakeStream

TOPIC = "orders"
ATTRIBUTES_MAX = 256


class FakeBacking(FakeStream):
    """The stream behind a topic of `segment_count` partitions."""

    def __post_init__(self) -> None:
        keys = [*map(partition_keys, range(self.segment_count)), rest_keys(self.segment_count)]
        for ordinal, each in enumerate(keys):
            self._make(segment_id(0, segment_number(ordinal, 1024)), each)
        self.head = dict.fromkeys(self.lives, 0)


@dataclass
class FakeTopic:
    incarnation: str
    spec: TopicSpec
    backing: FakeBacking
    without_leader: set[int] = field(default_factory=set)
    consumers: dict[str, int] = field(default_factory=dict)
    """Name → when it was named."""

    @property
    def partition_count(self) -> int:
        return len(self.backing.current) - 1


@dataclass
class TopicController(FakeController):
    """A fake controller that knows topics."""

    topics: dict[str, FakeTopic] = field(default_factory=dict)
    topic_count: int = 0

    def answer(self, name: str, data: bytes) -> Contract:
        question = t.QUERIES.get(name) or t.ACTIONS.get(name)
        if question is None:
            return super().answer(name, data)
        try:
            return self._told(question.query.model_validate_json(data))
        except AnabranchError as error:
            return QueryFailed(error=ErrorBody.of(error))

    def _told(self, query: Query) -> Contract:
        match query:
            case t.CreateTopic():
                if not query.dry_run:
                    self.create(query.topic, query.spec)
                    return t.TopicCreated(topic=self._described(query.topic))
                return t.TopicCreated(topic=self._checked(query))
            case t.DescribeTopic():
                return t.TopicDescribed(topic=self._described(query.topic))
            case t.ListTopics():
                names, token = self._page(
                    [name for name in sorted(self.topics) if query.matching in name], query
                )
                return t.TopicList(topics=tuple(map(self._described, names)), next_page_token=token)
            case t.DeleteTopic():
                return self._deleted(query.topic)
            case t.AddPartitions():
                self.add_partitions(query.topic, query.count)
                return t.TopicDescribed(topic=self._described(query.topic))
            case t.UpdateTopic():
                return self._updated(query)
            case t.ListPartitions():
                return self._partitions(query)
            case t.Rebalance():
                move = t.PlannedMove(container=1024, partitions=2, before=(1, 2), after=(2, 1))
                return t.RebalancePlan(moves=(move,))
        return self._about_consumers(query)

    def _about_consumers(self, query: Query) -> Contract:
        match query:
            case t.NameConsumer():
                topic = self._topic(query.topic)
                topic.consumers.setdefault(query.consumer, self.now_ms)
                return t.ConsumerNamed(incarnation=topic.incarnation)
            case t.ForgetConsumer():
                topic = self._topic(query.topic)
                topic.consumers.pop(query.consumer, None)
                return t.ConsumerNamed(incarnation=topic.incarnation)
            case t.ListConsumers():
                return t.ConsumerList(consumers=tuple(self._consumers(query.topic)))
        raise AssertionError(query)

    def _consumers(self, of: str) -> Iterator[t.ConsumerDescription]:
        for name, topic in sorted(self.topics.items()):
            if of in ("", name):
                for consumer, created_ms in sorted(topic.consumers.items()):
                    yield t.ConsumerDescription(
                        topic=name, incarnation=topic.incarnation, consumer=consumer,
                        created_ms=created_ms,
                    )  # fmt: skip

    # --- topics ---------------------------------------------------------------------------

    def create(self, name: str, spec: TopicSpec) -> None:
        if name in self.topics:
            raise TopicExists("Topic already exists", topic=name)
        self.topic_count += 1
        topic = FakeTopic(f"{self.topic_count:012x}", spec, FakeBacking(t.replica_counts(spec)[0]))
        self.topics[name] = topic
        ref = backing_stream(topic_name(name), topic.incarnation)
        self.scopes.setdefault(TOPIC_SCOPE, {})[ref.stream] = topic.backing
        for segment in self.segment_names(ref.scope, ref.stream):
            self._a_store().segments[segment] = FakeSegment()

    def add_partitions(self, name: str, count: int) -> None:
        topic, ref = self._topic(name), self.ref(name)
        before = topic.partition_count
        keys = [partition_keys(index) for index in range(before, before + count)]
        ranges = [(each.start, each.end) for each in (*keys, rest_keys(before + count))]
        rest = topic.backing.current[-1].segment_id
        for _ in topic.backing.scale(ref, self.store, [rest], ranges):
            pass

    def ref(self, name: str) -> StreamRef:
        return backing_stream(topic_name(name), self._topic(name).incarnation)

    def _deleted(self, name: str) -> t.TopicDeleted:
        topic, ref = self._topic(name), self.ref(name)
        del self.topics[name]
        topic.backing.state = StreamState.SEALED
        for segment in self.segment_names(ref.scope, ref.stream):
            self._a_store().seal(segment)
        return t.TopicDeleted(topic=name, incarnation=topic.incarnation)

    def _updated(self, query: t.UpdateTopic) -> t.TopicDescribed:
        topic = self._topic(query.topic)
        if query.retention_s is not None:
            topic.spec = replace(topic.spec, retention_s=query.retention_s)
        if query.compression is not None:
            topic.spec = replace(topic.spec, compression=Compression(query.compression))
        return t.TopicDescribed(topic=self._described(query.topic))

    def _topic(self, name: str) -> FakeTopic:
        if name not in self.topics:
            raise TopicNotFound("Topic not found", topic=name)
        return self.topics[name]

    def _checked(self, query: t.CreateTopic) -> t.TopicDescription:
        partitions, factor = t.replica_counts(query.spec)
        return t.TopicDescription(
            topic=query.topic, incarnation="", spec=query.spec, resolution=TopicResolution.INIT,
            partition_count=partitions, replication_factor=factor, scope="", stream="",
        )  # fmt: skip

    def _described(self, name: str) -> t.TopicDescription:
        topic, ref = self._topic(name), self.ref(name)
        return t.TopicDescription(
            topic=name, incarnation=topic.incarnation, spec=topic.spec,
            resolution=TopicResolution.PROVISIONED, partition_count=topic.partition_count,
            replication_factor=t.replica_counts(topic.spec)[1],
            partitions_online=topic.partition_count, scope=ref.scope, stream=ref.stream,
        )  # fmt: skip

    def _partitions(self, query: t.ListPartitions) -> t.PartitionList:
        if query.topic:
            self._topic(query.topic)
        names = [query.topic] if query.topic else sorted(self.topics)
        found = [each for name in names for each in self._partitions_of(name)]
        start = int(query.page_token or 0)
        end = start + min(self.page_size, query.page_size)
        return t.PartitionList(
            partitions=tuple(found[start:end]),
            next_page_token=str(end) if end < len(found) else "",
        )

    def _partitions_of(self, name: str) -> Iterator[t.PartitionDescription]:
        topic, ref = self._topic(name), self.ref(name)
        segments = self.segment_names(ref.scope, ref.stream)[:-1]
        for index, segment in enumerate(segments):
            is_led = index not in topic.without_leader
            yield t.PartitionDescription(
                topic=name, partition=index, segment=segment, container=1024,
                leader=1 if is_led else -1, replicas=(1,),
                resolution=(
                    PartitionResolution.ONLINE if is_led else PartitionResolution.LEADER_OFFLINE
                ),
            )  # fmt: skip


# --- the store ------------------------------------------------------------------------------------


def events_before(segment: FakeSegment, offset: int) -> int:
    """The number of events before a boundary."""
    at = count = 0
    while at < offset:
        header = parse_header(memoryview(segment.data), at)
        at, count = at + header.size, count + header.event_count
    return count


class TopicStore(FakeSegmentStore):
    """A fake store that numbers records and keeps attributes. `tells_numbers`: appends say how many
    records there are after them."""

    tells_numbers = True
    coarse = 1
    """`LocateEvent` knows only each so many-th boundary."""

    async def start(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: TopicConnection(self), "127.0.0.1", self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]


class TopicConnection(FakeConnection):
    """A connection to a `TopicStore`."""

    _store: TopicStore

    def _controlled(self, message: Message) -> Message:
        match message:
            case LocateEvent():
                return self._locate_event(message)
            case UpdateAttributes():
                self._update(message)
        return super()._controlled(message)

    def _locate_event(self, request: LocateEvent) -> EventLocated:
        segment = self._segment(request)
        if request.event_index < events_before(segment, segment.start):
            raise RecordEvicted("the record was evicted")
        known = [at for at in segment.boundaries if at > segment.start][:: self._store.coarse]
        places = [(at, events_before(segment, at)) for at in (segment.start, *known)]
        offset, count = max(each for each in places if each[1] <= request.event_index)
        return EventLocated(offset=offset, event_index=count)

    def _update(self, request: UpdateAttributes) -> None:
        segment = self._segment(request)
        last = segment.last_numbers.get(request.client_id, 0)
        if request.request_number <= last:
            return
        if request.request_number > last + 1:
            raise WriterExpired("the request starts too late", last=last)
        changed: dict[bytes, int | None] = {**segment.attributes}
        for update in request.updates:
            if update.kind == "replace-if-equals":
                if changed.get(update.attribute) != update.expected:
                    raise AttributeMismatch("another value", attribute=update.attribute.hex())
            else:
                assert update.kind == "replace"
            changed[update.attribute] = update.value
        kept = {name: value for name, value in changed.items() if value is not None}
        if len(kept) > ATTRIBUTES_MAX:
            raise TooManyAttributes("too many attributes", limit=ATTRIBUTES_MAX)
        segment.attributes = kept
        segment.last_numbers[request.client_id] = request.request_number

    def _append_once(self, request: AppendOnce, payload: bytes) -> Appended:
        before = self._segment(request).event_count
        reply = super()._append_once(request, payload)
        after = self._segment(request).event_count
        is_told = self._store.tells_numbers and after > before
        return msgspec.structs.replace(reply, event_count=after if is_told else -1)

    def _info(self, request: GetSegmentInfo) -> SegmentInfo:
        segment = self._segment(request)
        count = events_before(segment, segment.start)
        return msgspec.structs.replace(super()._info(request), start_event_count=count)


# --- the bench ------------------------------------------------------------------------------------


@dataclass
class TopicBench:
    """A client on a controller and a store that know topics."""

    store: TopicStore
    controller: TopicController
    control: FakeControlPlane
    client: Client

    def segment(self, partition: int, topic: str = TOPIC) -> FakeSegment:
        """The segment of a partition."""
        ref = self.controller.ref(topic)
        return self.store.segments[self.controller.segment_names(ref.scope, ref.stream)[partition]]

    async def stored(self, topic: str = TOPIC, **how: Any) -> list[Record]:
        """All records, read by a consumer up to the end."""
        async with self.client.topics.consumer(topic, until_end=True, **how) as consumer:
            return [record async for record in consumer]

    async def values(self, topic: str = TOPIC) -> dict[int, list[bytes]]:
        """Partition → its values."""
        found: dict[int, list[bytes]] = {}
        for record in await self.stored(topic):
            found.setdefault(record.partition, []).append(record.value)
        return found

    async def fill(self, values: Sequence[bytes], partition: int = 0, topic: str = TOPIC) -> None:
        """One append per value."""
        async with self.client.topics.producer(topic) as producer:
            for value in values:
                producer.write(value, partition=partition)
                await producer.flush()


@asynccontextmanager
async def topic_bench(
    partitions: int = 1, *, spec: TopicSpec | None = None, clock: Clock | None = None
) -> AsyncIterator[TopicBench]:
    """An open client, and a topic of so many partitions."""
    store = TopicStore()
    async with store:
        controller = TopicController(store)
        controller.create(TOPIC, spec or TopicSpec(replicas=Computed(partitions)))
        control = FakeControlPlane(controller)
        client = Client(
            control,
            clock=clock or SystemClock(),
            ids=SeededIds(1),
            rng=system_rng(),
            connections=CONNECTION,
        )
        async with client:
            yield TopicBench(store, controller, control, client)
