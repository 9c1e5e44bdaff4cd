"""The fake controller's reader groups and subscribers, and what writers told it of time.

A group's state stream is a stream of one segment. Everything is done at once.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from anabranch.common.contracts import reader_groups as rg
from anabranch.common.contracts import writer_times as wt
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import (
    CutRefused,
    GenerationMismatch,
    InvalidRequest,
    ReaderGroupExists,
    ReaderGroupNotFound,
    StreamNotFound,
    SubscriberNotFound,
)
from anabranch.common.model.names import ScopeName, SegmentId
from anabranch.common.model.reader_group import (
    GroupRef,
    GroupRetention,
    GroupState,
    ReaderGroupConfig,
    SegmentPosition,
)
from kit.fake_streams import FakeStream

GroupCommand = (
    rg.CreateReaderGroup
    | rg.ResetReaderGroup
    | rg.DeleteReaderGroup
    | rg.AddSubscriber
    | rg.RemoveSubscriber
    | rg.UpdateSubscriberCut
)
QUERIES = {name: asked.query for name, asked in {**rg.QUERIES, **wt.QUERIES, **wt.ACTIONS}.items()}
FindStream = Callable[[str, str], FakeStream]
"""By scope and name. Raises StreamNotFound."""


@dataclass
class FakeGroup:
    incarnation: int
    config: ReaderGroupConfig
    generation: int = 0


@dataclass
class FakeGroups:
    """`make_stream` and `drop_stream` make and delete state streams; `now_ms` notes marks."""

    find_stream: FindStream
    make_stream: Callable[[str, str], None]
    drop_stream: Callable[[str, str], None]
    now_ms: Callable[[], int]
    groups: dict[GroupRef, FakeGroup] = field(default_factory=dict)
    incarnations: dict[GroupRef, int] = field(default_factory=dict)

    # --- commands -------------------------------------------------------------------------

    def perform(self, command: GroupCommand) -> None:
        match command:
            case rg.CreateReaderGroup():
                self._create(command)
            case rg.ResetReaderGroup():
                self._reset(command)
            case rg.DeleteReaderGroup():
                ref = GroupRef(ScopeName(command.scope), command.group)
                self._unsubscribe(ref, self.find(ref).config)
                self.drop_stream(ref.scope, ref.state_stream.stream)
                del self.groups[ref]
            case _:
                self._subscribers(command)

    def _create(self, command: rg.CreateReaderGroup) -> None:
        ref = GroupRef(ScopeName(command.scope), command.group)
        if ref in self.groups:
            raise ReaderGroupExists("the reader group already exists", group=str(ref))
        config = self._resolved(command.config)
        self.make_stream(ref.scope, ref.state_stream.stream)
        self.incarnations[ref] = self.incarnations.get(ref, 0) + 1
        self.groups[ref] = FakeGroup(self.incarnations[ref], config)
        self._subscribe(ref)

    def _reset(self, command: rg.ResetReaderGroup) -> None:
        ref = GroupRef(ScopeName(command.scope), command.group)
        group = self.find(ref)
        if command.expected_generation not in (None, group.generation):
            raise GenerationMismatch(
                "the reader group is at another generation", generation=group.generation
            )
        config = self._resolved(command.config)
        self._unsubscribe(ref, group.config)
        self.groups[ref] = FakeGroup(group.incarnation, config, group.generation + 1)
        self._subscribe(ref)

    def _subscribe(self, ref: GroupRef) -> None:
        group = self.groups[ref]
        if group.config.retention is GroupRetention.NONE:
            return
        for each in group.config.streams:
            stream = self.find_stream(each.ref.scope, each.ref.stream)
            stream.subscribers[str(ref)] = rg.SubscriberDescription(
                subscriber=str(ref), generation=group.generation
            )

    def _unsubscribe(self, ref: GroupRef, config: ReaderGroupConfig) -> None:
        for each in config.streams:
            with suppress(StreamNotFound):
                self.find_stream(each.ref.scope, each.ref.stream).subscribers.pop(str(ref), None)

    def _subscribers(
        self, command: rg.AddSubscriber | rg.RemoveSubscriber | rg.UpdateSubscriberCut
    ) -> None:
        known = self.find_stream(command.scope, command.stream).subscribers
        match command:
            case rg.AddSubscriber():
                known[command.subscriber] = rg.SubscriberDescription(
                    subscriber=command.subscriber, generation=command.generation
                )
            case rg.RemoveSubscriber():
                known.pop(command.subscriber, None)
            case rg.UpdateSubscriberCut():
                found = known.get(command.subscriber)
                if found is None:
                    raise SubscriberNotFound("no such subscriber", subscriber=command.subscriber)
                if found.generation != command.generation:
                    raise GenerationMismatch("reset", generation=found.generation)
                if found.cut > tuple(sorted(command.cut)):
                    raise CutRefused("the cut lies behind what was released")
                known[command.subscriber] = found.model_copy(update={"cut": command.cut})

    def _resolved(self, config: ReaderGroupConfig) -> ReaderGroupConfig:
        streams = []
        for each in config.streams:
            head = self.find_stream(each.ref.scope, each.ref.stream).head
            start = tuple(SegmentPosition(SegmentId(s), at) for s, at in sorted(head.items()))
            streams.append(replace(each, start=each.start or start))
        return replace(config, streams=tuple(streams))

    # --- queries --------------------------------------------------------------------------

    def find(self, ref: GroupRef) -> FakeGroup:
        if ref not in self.groups:
            raise ReaderGroupNotFound("no such reader group", group=str(ref))
        return self.groups[ref]

    def names(self, scope: str) -> list[str]:
        return sorted(ref.group for ref in self.groups if ref.scope == scope)

    def describe(self, query: rg.DescribeReaderGroup) -> Contract:
        group = self.find(GroupRef(ScopeName(query.scope), query.group))
        return rg.ReaderGroupDescription(
            scope=query.scope, group=query.group, incarnation=group.incarnation,
            generation=group.generation, state=GroupState.ACTIVE,
            created_ms=1_700_000_000_000, config=group.config,
        )  # fmt: skip

    def subscribers(self, query: rg.ListSubscribers) -> Contract:
        known = self.find_stream(query.scope, query.stream).subscribers
        return rg.SubscriberList(subscribers=tuple(known[name] for name in sorted(known)))

    def marks(self, query: wt.NoteTime | wt.RemoveWriter) -> Contract:
        known = self.find_stream(query.scope, query.stream).marks
        if isinstance(query, wt.RemoveWriter):
            return wt.WriterRemoved(was_known=known.pop(query.writer_id, None) is not None)
        before = known.get(query.writer_id)
        if before is not None and before.timestamp_ms > query.timestamp_ms:
            raise InvalidRequest(
                "the writer's time is lower than its last one",
                timestamp_ms=query.timestamp_ms,
                noted_ms=before.timestamp_ms,
            )
        known[query.writer_id] = wt.WriterMark(
            writer_id=query.writer_id, timestamp_ms=query.timestamp_ms,
            positions=query.positions, noted_ms=self.now_ms(),
        )  # fmt: skip
        return wt.TimeNoted(incarnation=1)

    def listed_marks(self, query: wt.ListWriterMarks, page_size: int) -> Contract:
        known = self.find_stream(query.scope, query.stream).marks
        rest = [name for name in sorted(known) if name > query.page_token]
        page = rest[: min(page_size, query.page_size)]
        return wt.WriterMarkList(
            incarnation=1,
            now_ms=self.now_ms(),
            marks=tuple(known[name] for name in page),
            next_page_token=page[-1] if len(rest) > len(page) else "",
        )
