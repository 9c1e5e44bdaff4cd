"""A controller in memory: streams and their segments, and who serves them.

It answers queries and commands as data (`answer`, `decide`), so that the same rules stand
behind an in-process `ControlPlane` and behind the subjects of a real NATS server.
"""

from dataclasses import dataclass, field

from anabranch.common.contracts import membership as m
from anabranch.common.contracts import queries as q
from anabranch.common.contracts import reader_groups as rg
from anabranch.common.contracts import spus, topics
from anabranch.common.contracts import stream_queries as sq
from anabranch.common.contracts import tables as kvt
from anabranch.common.contracts import writer_times as wt
from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken
from anabranch.common.contracts.commands import (
    Accepted,
    Command,
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    OperationState,
    OperationStatus,
    Rejected,
    ScaleStream,
    SealStream,
    TruncateStream,
)
from anabranch.common.contracts.container_queries import PlacementChange
from anabranch.common.contracts.scaling import ExplainScaling
from anabranch.common.errors import (
    AnabranchError,
    OperationNotFound,
    ScopeExists,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamExists,
    StreamNotFound,
    StreamNotSealed,
)
from anabranch.common.model.names import ScopeName, StreamName, StreamRef, is_internal
from anabranch.common.model.stream import StreamState
from kit import fake_containers, fake_groups, fake_tables, fake_transactions
from kit.fake_containers import NODES
from kit.fake_groups import FakeGroups
from kit.fake_scaling import explained
from kit.fake_segment import FakeSegment
from kit.fake_segstore import FakeSegmentStore
from kit.fake_streams import FakeStream
from kit.fake_tables import FakeTables
from kit.fake_transactions import FakeTransactions

TOKEN = ReadToken(shard=0, sequence=1)
QUERIES: dict[str, type[q.Query]] = {
    "list_scopes": q.ListScopes,
    "describe_scope": q.DescribeScope,
    "list_streams": q.ListStreams,
    "describe_stream": q.DescribeStream,
    "current_segments": q.CurrentSegments,
    "segment_rates": q.SegmentRates,
    "locate": q.Locate,
    "operation": q.GetOperation,
    "head_cut": sq.HeadCut,
    "tail_cut": sq.TailCut,
    "compare_cuts": sq.CompareCuts,
    "segments_at_time": sq.SegmentsAtTime,
    "successors": sq.Successors,
    "epoch_segments": sq.EpochSegments,
    "segments_between": sq.SegmentsBetween,
    "explain_scaling": ExplainScaling,
    "list_controllers": m.ListControllers,
    "cluster_overview": m.ShowCluster,
    "confirm_losses": m.ConfirmLosses,
    "list_topics": topics.ListTopics,
    "list_spus": spus.ListSpus,
    "list_spu_groups": spus.ListSpuGroups,
    **fake_containers.QUERIES,
    **fake_groups.QUERIES,
    **fake_tables.QUERIES,
    **fake_transactions.QUERIES,
}


@dataclass
class FakeController:
    """`store` serves every segment; `page_size` is small so that paging is exercised."""

    store: FakeSegmentStore | None = None
    page_size: int = 2
    scopes: dict[str, dict[str, FakeStream]] = field(default_factory=dict)
    operations: dict[str, OperationStatus] = field(default_factory=dict)
    hold: m.Hold | None = None
    away: bool = False
    """While set, `locate` finds no store."""
    container_count: int = 1
    """All served by `store`; only the first has segments."""
    elsewhere: dict[str, FakeSegmentStore] = field(default_factory=dict)
    """Segments that another store serves."""
    placed: dict[int, str] = field(default_factory=dict)
    """Containers that were moved → to which of `NODES`."""
    drained: set[str] = field(default_factory=set)
    """Which of `NODES` are drained."""
    changes: list[PlacementChange] = field(default_factory=list)
    now_ms: int = 1_700_000_000_000

    def __post_init__(self) -> None:
        self.groups = FakeGroups(
            self._stream, self._make_state_stream, self._drop_stream, lambda: self.now_ms
        )
        self.tables = FakeTables(self._store_of, lambda: self.now_ms)
        self.transactions = FakeTransactions(self._stream, self._a_store, lambda: self.now_ms)

    # --- commands -------------------------------------------------------------------------

    def decide(self, command: Command) -> Accepted | Rejected:
        """Perform the command at once; a repeated id changes nothing."""
        if command.command_id not in self.operations:
            try:
                self._perform(command)
            except AnabranchError as error:
                return Rejected(error=ErrorBody.of(error))
            self.operations[command.command_id] = OperationStatus(
                operation=command.command_id, state=OperationState.SUCCEEDED, read_token=TOKEN
            )
        return Accepted(operation=command.command_id, read_token=TOKEN)

    def _perform(self, command: Command) -> None:
        match command:
            case CreateScope():
                if command.scope in self.scopes:
                    raise ScopeExists("the scope already exists", scope=command.scope)
                self.scopes[command.scope] = {}
            case DeleteScope():
                self._require_empty(command.scope)
                del self.scopes[command.scope]
            case CreateStream():
                self._create_stream(command)
            case SealStream():
                stream = self._stream(command.scope, command.stream)
                stream.state = StreamState.SEALED
                for segment in self._stored(command.scope, command.stream, stream):
                    segment.sealed = True
            case ScaleStream() | TruncateStream():
                self._reshape(command)
            case DeleteStream():
                stream = self._stream(command.scope, command.stream)
                if stream.state is not StreamState.SEALED:
                    raise StreamNotSealed("the stream is not sealed", stream=command.stream)
                del self.scopes[command.scope][command.stream]
            case (
                rg.CreateReaderGroup()
                | rg.ResetReaderGroup()
                | rg.DeleteReaderGroup()
                | rg.AddSubscriber()
                | rg.RemoveSubscriber()
                | rg.UpdateSubscriberCut()
            ):
                self._scope(command.scope)
                self.groups.perform(command)
            case kvt.CreateTable() | kvt.UpdateTableConfig() | kvt.SealTable() | kvt.DeleteTable():
                self._scope(command.scope)
                self.tables.perform(command)

    def _require_empty(self, scope: str) -> None:
        parts = (self._scope(scope), self.groups.names(scope), self.tables.names(scope))
        if any(parts):
            raise ScopeNotEmpty("the scope has streams", scope=scope)

    def _make_state_stream(self, scope: str, stream: str) -> None:
        self._create_stream(CreateStream(command_id="state", scope=scope, stream=stream))

    def _drop_stream(self, scope: str, stream: str) -> None:
        """With its segments: whoever reads it notices."""
        if self.store is not None:
            for name in self.segment_names(scope, stream):
                self.store.delete(name)
        self.scopes[scope].pop(stream, None)

    def _create_stream(self, command: CreateStream) -> None:
        scope = self._scope(command.scope)
        if command.stream in scope:
            raise StreamExists("the stream already exists", stream=command.stream)
        scope[command.stream] = FakeStream(command.configured().scaling.min_segments)
        if self.store is not None:
            for name in self.segment_names(command.scope, command.stream):
                self.store.deleted.discard(name)
                self.store.segments[name] = FakeSegment()

    def _reshape(self, command: ScaleStream | TruncateStream) -> None:
        stream, ref = self._stream(command.scope, command.stream), _ref(command)
        if isinstance(command, ScaleStream):
            ranges = [(new.key_start, new.key_end) for new in command.new_ranges]
            for _ in stream.scale(ref, self.store, command.seal, ranges):
                pass
            return
        cut = {int(at.segment_id): at.offset for at in command.cut}
        stream.truncate(ref, self.store, cut)

    # --- queries --------------------------------------------------------------------------

    def answer(self, name: str, data: bytes) -> Contract:
        """The answer to the query called `name`, a QueryFailed included."""
        query = QUERIES[name].model_validate_json(data)
        if name in m.QUERIES or name in m.ACTIONS:
            return self._cluster(query)
        try:
            if name in fake_transactions.QUERIES:
                return self.transactions.answer(query)
            return self._answer(query)
        except AnabranchError as error:
            return q.QueryFailed(error=ErrorBody.of(error))

    def _answer(self, query: q.Query) -> Contract:
        match query:
            case q.ListScopes():
                names, token = self._page(sorted(self.scopes), query)
                return q.ScopeList(scopes=names, next_page_token=token)
            case q.DescribeScope():
                self._scope(query.scope)
                return q.ScopeDescription(scope=query.scope, incarnation=1)
            case q.ListStreams():
                listed = sorted(n for n in self._scope(query.scope) if not is_internal(n))
                names, token = self._page(listed, query)
                return q.StreamList(streams=names, next_page_token=token)
            case q.DescribeStream():
                stream = self._stream(query.scope, query.stream)
                return q.StreamDescription(
                    scope=query.scope, stream=query.stream,
                    incarnation=stream.incarnation, revision=1, state=stream.state,
                    segment_count=len(stream.current), stream_epoch=stream.epoch,
                    created_ms=1_700_000_000_000,
                )  # fmt: skip
            case wt.NoteTime() | wt.RemoveWriter():
                return self.groups.marks(query)
            case q.CurrentSegments() | q.SegmentRates() | sq.StreamQuery():
                return self._about_segments(query)
            case q.Locate():
                return self._locate(query)
            case q.GetOperation():
                return self._operation(query)
            case _ if isinstance(query, fake_containers.ASKED):
                return fake_containers.answer(self, query)
        return self._about_parts(query)

    def _about_parts(self, query: q.Query) -> Contract:
        match query:
            case kvt.DescribeKeyValueTable():
                self._scope(query.scope)
                return self.tables.describe(query)
            case kvt.ListTables():
                self._scope(query.scope)
                names, token = self._page(self.tables.names(query.scope), query)
                return kvt.TableList(tables=names, next_page_token=token)
            case rg.DescribeReaderGroup():
                self._scope(query.scope)
                return self.groups.describe(query)
            case rg.ListReaderGroups():
                self._scope(query.scope)
                names, token = self._page(self.groups.names(query.scope), query)
                return rg.ReaderGroupList(groups=names, next_page_token=token)
            case rg.ListSubscribers():
                return self.groups.subscribers(query)
            case wt.ListWriterMarks():
                return self.groups.listed_marks(query, self.page_size)
        return _nothing(query)

    def _about_segments(
        self, query: q.CurrentSegments | q.SegmentRates | sq.StreamQuery
    ) -> Contract:
        match query:
            case q.CurrentSegments():
                return self._segments(query.scope, query.stream)
            case q.SegmentRates():
                return self._rates(query.scope, query.stream)
            case sq.TailCut():
                stream = self._stream(query.scope, query.stream)
                return stream.tail(_ref(query), self._a_store())
            case ExplainScaling():
                found = self._segments(query.scope, query.stream)
                return explained(found.stream_epoch, found.segments)
        return self._stream(query.scope, query.stream).answer(_ref(query), query)

    def _page(self, names: list[str], query: q.PagedQuery) -> tuple[tuple[str, ...], str]:
        rest = [name for name in names if name > query.page_token]
        page = tuple(rest[: min(self.page_size, query.page_size)])
        return page, page[-1] if len(rest) > len(page) else ""

    def _segments(self, scope: str, name: str) -> q.SegmentList:
        stream = self._stream(scope, name)
        return q.SegmentList(
            incarnation=stream.incarnation,
            state=stream.state,
            stream_epoch=stream.epoch,
            segments=stream.listed(_ref_of(scope, name)),
        )

    def _rates(self, scope: str, name: str) -> q.SegmentRateList:
        """Known of the first segment only."""
        known = q.SegmentRate(events_per_s=12.5, bytes_per_s=1e6, over_ms=60_000)
        return q.SegmentRateList(
            segments=tuple(
                q.SegmentWithRate(
                    **segment.model_dump(), rate=None if segment.segment_id else known
                )
                for segment in self._segments(scope, name).segments
            )
        )

    def _locate(self, query: q.Locate) -> q.Located:
        return q.Located(locations=tuple(map(self._location, query.segments)))

    def _store_of(self, segment: str) -> FakeSegmentStore | None:
        return self.elsewhere.get(segment, self.store)

    def _location(self, segment: str) -> q.SegmentLocation:
        store = None if self.away else self._store_of(segment)
        return q.SegmentLocation(
            segment=segment,
            container=0,
            container_epoch=store.container_epoch if store else 0,
            host="127.0.0.1" if store else "",
            port=store.port if store else 0,
            node_id=NODES[0],
        )

    def _cluster(self, query: q.Query) -> Contract:
        """Of two controllers the first leads; `hold` is as the test has set it."""
        match query:
            case m.ListControllers():
                names = ("fake", "other")
                return m.ControllerList(
                    controllers=tuple(
                        m.ControllerDescription(
                            controller_id=name, session=f"session-{name}", live=name == "fake",
                            since_ms=1_700_000_000_000, leader=name == "fake",
                            term=3 if name == "fake" else 0, host="host", pid=7,
                        )
                        for name in names
                    )
                )  # fmt: skip
            case m.ConfirmLosses():
                lost, self.hold = self.hold, None
                gone = (lost.controllers, lost.stores) if lost else ((), ())
                return m.LossesConfirmed(controllers=gone[0], stores=gone[1])
        return m.ClusterOverview(
            answered_by="fake", leader="fake", term=3, hold=self.hold,
            controllers=m.MemberCount(known=2, live=1), stores=m.MemberCount(known=2, live=2),
            containers={"open": self.container_count},
            buckets=(m.BucketOwner(bucket=0, owner="fake"), m.BucketOwner(bucket=1, owner="")),
        )  # fmt: skip

    def _operation(self, query: q.GetOperation) -> q.OperationFound:
        status = self.operations.get(query.operation)
        if status is None:
            raise OperationNotFound("no such operation", operation=query.operation)
        return q.OperationFound(
            operation=query.operation, state=status.state.value, error=status.error
        )

    # --- state ----------------------------------------------------------------------------

    def _a_store(self) -> FakeSegmentStore:
        assert self.store is not None
        return self.store

    def segment_names(self, scope: str, stream: str) -> list[str]:
        """Of the current segments, sorted by key."""
        found = self.scopes[scope][stream].listed(_ref_of(scope, stream))
        return [segment.name for segment in found]

    def _scope(self, scope: str) -> dict[str, FakeStream]:
        if scope not in self.scopes:
            raise ScopeNotFound("the scope does not exist", scope=scope)
        return self.scopes[scope]

    def _stream(self, scope: str, stream: str) -> FakeStream:
        found = self.scopes.get(scope, {}).get(stream)
        if found is None:
            raise StreamNotFound("the stream does not exist", stream=f"{scope}/{stream}")
        return found

    def _stored(self, scope: str, name: str, stream: FakeStream) -> list[FakeSegment]:
        if self.store is None:
            return []
        return [self.store.segments[segment] for segment in self.segment_names(scope, name)]


def _nothing(query: q.Query) -> Contract:
    """The answer of a cluster without topics and registered SPUs; `fake_topics` has topics."""
    match query:
        case topics.ListTopics():
            return topics.TopicList(topics=())
        case spus.ListSpus():
            return spus.SpuList(spus=())
        case spus.ListSpuGroups():
            return spus.SpuGroupList(groups=())
    raise AssertionError(query)


def _ref(named: ScaleStream | TruncateStream | sq.StreamQuery) -> StreamRef:
    return _ref_of(named.scope, named.stream)


def _ref_of(scope: str, stream: str) -> StreamRef:
    """Of internal streams, too."""
    return StreamRef(ScopeName(scope), StreamName(stream))
