"""The fake controller's transactions: a model in memory that decides and works at once.

A commit merges on the store itself, unless `is_slow` is set: then transactions stay in COMMITTING
or ABORTING until `finish`. Nothing rolls: the stream is not scaled while it has any open.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.common.contracts import transactions as t
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Query, SegmentInStream
from anabranch.common.errors import (
    EpochPassed,
    IdOutOfTime,
    InvalidRequest,
    PartMismatch,
    StreamSealed,
    TransactionEnded,
    TransactionNotFound,
    VersionPassed,
)
from anabranch.common.model.names import (
    ScopeName,
    StreamName,
    StreamRef,
    transaction_segment_name,
)
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import TransactionState, transaction_id
from anabranch.common.runtime.ids import IdSource, SeededIds
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import AppendOnce
from anabranch.controller.domain.transaction import decide
from kit.fake_segment import FakeSegment
from kit.fake_segstore import FakeSegmentStore
from kit.fake_streams import FakeStream

QUERIES: dict[str, type[Query]] = {
    name: asked.query for name, asked in {**t.QUERIES, **t.ACTIONS}.items()
}
S = TransactionState


@dataclass
class FakeTransaction:
    """`parents`: the segments of the stream beside which it has its own."""

    begun: t.BeginTransaction
    transaction_id: str
    parents: tuple[SegmentInStream, ...]
    opened_ms: int
    state: TransactionState = S.OPEN
    parts: list[str] = field(default_factory=list)
    committed: tuple[t.CommittedPart, ...] = ()
    blocks: dict[str, bytes] = field(default_factory=dict)
    """By segment, if its commit carried them."""
    mark: tuple[str, int] | None = None
    """(writer id, time) that its commit noted."""

    def segments(self, part: str = "") -> tuple[SegmentInStream, ...]:
        return tuple(
            each.model_copy(
                update={"name": transaction_segment_name(each.name, self.transaction_id, part)}
            )
            for each in self.parents
        )

    def info(self, now_ms: int) -> t.TransactionInfo:
        is_open = self.state is S.OPEN
        return t.TransactionInfo(
            transaction_id=self.transaction_id, state=self.state, incarnation=1, stream_epoch=0,
            writer=self.begun.writer, opened_ms=self.opened_ms, age_ms=now_ms - self.opened_ms,
            lease_ms=self.begun.lease_ms, lease_left_ms=self.begun.lease_ms if is_open else 0,
            deadline_ms=now_ms + self.begun.lease_ms if is_open else 0,
            has_parts=self.begun.parts, part_count=len(self.parts), key=self.begun.key,
        )  # fmt: skip


@dataclass
class FakeTransactions:
    stream_of: Callable[[str, str], FakeStream]
    store_of: Callable[[], FakeSegmentStore]
    now_ms: Callable[[], int]
    ids: IdSource = field(default_factory=lambda: SeededIds(7))
    known: dict[str, FakeTransaction] = field(default_factory=dict)
    """By id, in the order of beginning."""
    applications: dict[str, t.ApplicationDescription] = field(default_factory=dict)
    submitted: list[t.CommitEvents] = field(default_factory=list)
    """Every request, also those that were refused."""
    pings: list[t.PingTransactions] = field(default_factory=list)
    exceeded: set[str] = field(default_factory=set)
    """Those that live as long as they may."""
    is_slow: bool = False

    def answer(self, query: Query) -> Contract:
        match query:
            case t.BeginTransaction():
                return self._begin(query)
            case t.PingTransactions():
                return self._ping(query)
            case t.CommitEvents():
                return self._submit(query)
            case t.ListTransactions():
                return self._list(query)
            case t.DescribeApplication():
                return self._application(query.application)
            case t.ForgetApplication():
                self.applications.pop(query.application, None)
                return self._application(query.application)
            case t.TransactionQuery():
                return self._of_one(query)
        raise AssertionError(query)

    def _of_one(self, query: t.TransactionQuery) -> Contract:
        self.stream_of(query.scope, query.stream)
        found = self.known.get(query.transaction_id)
        if found is None:
            raise TransactionNotFound("no such transaction", transaction=query.transaction_id)
        match query:
            case t.ResumeTransaction():
                return self._begun(found)
            case t.AddTransactionPart():
                return self._add_part(found, query.part)
            case t.CommitTransaction():
                self._commit(found, query)
            case t.AbortTransaction():
                self.abort(found.transaction_id)
                if found.state not in (S.ABORTING, S.ABORTED):
                    raise _ended(found)
        return t.TransactionDescription(transaction=found.info(self.now_ms()))

    # --- carried --------------------------------------------------------------------------

    def _submit(self, query: t.CommitEvents) -> Contract:
        self.submitted.append(query)
        stream = self.stream_of(query.scope, query.stream)
        found = self.known.get(query.transaction_id)
        if found is None:
            found = self._submitted(query, stream)
            if not self.is_slow:
                self.finish()
        return t.TransactionDescription(transaction=found.info(self.now_ms()))

    def _submitted(self, query: t.CommitEvents, stream: FakeStream) -> FakeTransaction:
        if stream.state is StreamState.SEALED:
            raise StreamSealed("the stream is sealed")
        if query.stream_epoch != stream.epoch:
            raise EpochPassed("another epoch", stream_epoch=stream.epoch)
        now_ms = self.now_ms()
        if not decide.is_in_time(query.transaction_id, now_ms):
            raise IdOutOfTime("too old", now_ms=now_ms)
        ref = StreamRef(ScopeName(query.scope), StreamName(query.stream))
        parents = {each.segment_id: each for each in stream.listed(ref)}
        assert {each.segment_id for each in query.blocks} <= parents.keys()
        begun = t.BeginTransaction(scope=query.scope, stream=query.stream, writer=query.writer)
        found = FakeTransaction(begun, query.transaction_id, (), now_ms, S.COMMITTING)
        found.blocks = {parents[each.segment_id].name: each.block for each in query.blocks}
        self.known[found.transaction_id] = found
        return found

    # --- beginning ------------------------------------------------------------------------

    def _begin(self, query: t.BeginTransaction) -> t.TransactionBegun:
        stream = self.stream_of(query.scope, query.stream)
        if stream.state is StreamState.SEALED:
            raise StreamSealed("the stream is sealed")
        found = None if query.key is None else self._of_key(query.key)
        is_new = found is None
        if found is None:
            ref = StreamRef(ScopeName(query.scope), StreamName(query.stream))
            new = transaction_id(self.now_ms(), self.ids.new_bytes())
            found = FakeTransaction(query, new, stream.listed(ref), self.now_ms())
            self.known[found.transaction_id] = found
            if not query.parts:
                self._make(found)
            if query.key is not None:
                self._keep(query.key.application, open_version=query.key.version,
                           open_transaction=found.transaction_id)  # fmt: skip
        return self._begun(found).model_copy(update={"is_new": is_new})

    def _of_key(self, key: t.TransactionKey) -> FakeTransaction | None:
        known = self._application(key.application)
        for version, transaction in (
            (known.committed_version, known.committed_transaction),
            (known.open_version, known.open_transaction),
        ):
            if version is None or transaction is None:
                continue
            if version > key.version:
                raise VersionPassed("a later version", application=key.application, version=version)
            if version == key.version and self.known[transaction].state is not S.ABORTED:
                return self.known[transaction]
        return None

    def _begun(self, found: FakeTransaction) -> t.TransactionBegun:
        has_own = found.state is S.OPEN and not found.begun.parts
        return t.TransactionBegun(
            transaction=found.info(self.now_ms()), segments=found.segments() if has_own else ()
        )

    def _make(self, found: FakeTransaction, part: str = "") -> None:
        for segment in found.segments(part):
            self.store_of().segments.setdefault(segment.name, FakeSegment())

    def _add_part(self, found: FakeTransaction, part: str) -> t.TransactionBegun:
        if found.state is not S.OPEN:
            raise _ended(found)
        if not found.begun.parts:
            raise InvalidRequest("the transaction has no parts")
        if part not in found.parts:
            found.parts.append(part)
        self._make(found, part)
        return t.TransactionBegun(
            transaction=found.info(self.now_ms()), segments=found.segments(part)
        )

    # --- ends -----------------------------------------------------------------------------

    def _commit(self, found: FakeTransaction, query: t.CommitTransaction) -> None:
        if found.state in (S.ABORTING, S.ABORTED):
            raise _ended(found)
        if found.state is not S.OPEN:
            return
        self._check(found, query.parts)
        key = found.begun.key
        if key is not None:
            if not self._has_open(key.application, found):
                raise VersionPassed("went on", application=key.application, version=key.version)
            self._keep(key.application, committed_version=key.version,
                       committed_transaction=found.transaction_id)  # fmt: skip
        found.committed = query.parts
        found.state = S.COMMITTING
        if query.timestamp_ms is not None:
            found.mark = (query.writer_id, query.timestamp_ms)
        if not self.is_slow:
            self.finish()

    def _check(self, found: FakeTransaction, parts: tuple[t.CommittedPart, ...]) -> None:
        segments = self.store_of().segments
        for part in parts:
            if part.part not in found.parts:
                raise PartMismatch("no such part", part=part.part)
            said = {each.segment_id: each.length for each in part.lengths}
            for segment in found.segments(part.part):
                length = len(segments[segment.name].data)
                if length != said.get(segment.segment_id, 0):
                    raise PartMismatch("not as long", part=part.part, length=length)

    def abort(self, transaction_id: str) -> None:
        """As when its time is over; nothing happens to one that has an outcome."""
        found = self.known[transaction_id]
        if found.state is S.OPEN:
            found.state = S.ABORTING
            if not self.is_slow:
                self.finish()

    def finish(self) -> None:
        """What was decided is done, in the order of beginning."""
        for found in self.known.values():
            if found.state is S.COMMITTING:
                parts = [part.part for part in found.committed] if found.begun.parts else [""]
                for part in parts:
                    self._merge(found, part)
                self._drop(found)
                found.state = S.COMMITTED
            elif found.state is S.ABORTING:
                self._drop(found)
                found.state = S.ABORTED
                key = found.begun.key
                if key is not None and self._has_open(key.application, found):
                    self._keep(key.application)

    def _merge(self, found: FakeTransaction, part: str) -> None:
        segments = self.store_of().segments
        for name, block in found.blocks.items():
            source, header = FakeSegment(now_ms=self.now_ms()), parse_header(block)
            append = AppendOnce(
                segment=name, writer_id=header.writer_id, count=header.event_count,
                first_event_number=header.first_event_number,
            )  # fmt: skip
            source.append(header.writer_id, append, block)
            segments[name].absorb(source)
        for parent, own in zip(found.parents, found.segments(part), strict=True):
            segments[parent.name].absorb(segments[own.name])

    def _drop(self, found: FakeTransaction) -> None:
        for part in found.parts if found.begun.parts else [""]:
            for segment in found.segments(part):
                if segment.name in self.store_of().segments:
                    self.store_of().delete(segment.name)

    def _has_open(self, application: str, found: FakeTransaction) -> bool:
        return self._application(application).open_transaction == found.transaction_id

    def _keep(self, application: str, **changes: object) -> None:
        """Without `open_…` nothing is open any more."""
        closed = {"open_version": None, "open_transaction": None}
        known = self._application(application)
        self.applications[application] = known.model_copy(update={**closed, **changes})

    def _application(self, name: str) -> t.ApplicationDescription:
        return self.applications.get(name, t.ApplicationDescription(application=name))

    # --- questions ------------------------------------------------------------------------

    def _ping(self, query: t.PingTransactions) -> t.TransactionsPinged:
        self.stream_of(query.scope, query.stream)
        self.pings.append(query)
        return t.TransactionsPinged(results=tuple(map(self._pinged, query.pings)))

    def _pinged(self, ping: t.PingTransaction) -> t.TransactionPinged:
        found = self.known.get(ping.transaction_id)
        if found is None:
            return t.TransactionPinged(transaction_id=ping.transaction_id, state=None)
        refusal = "execution_exceeded" if ping.transaction_id in self.exceeded else ""
        left_ms = (ping.lease_ms or found.begun.lease_ms) if found.state is S.OPEN else 0
        return t.TransactionPinged(
            transaction_id=ping.transaction_id, state=found.state, lease_left_ms=left_ms,
            refusal=refusal,  # type: ignore[arg-type]
        )  # fmt: skip

    def _list(self, query: t.ListTransactions) -> t.TransactionList:
        """Two on a page."""
        self.stream_of(query.scope, query.stream)
        found = [
            each
            for name, each in sorted(self.known.items())
            if name > query.page_token
            and (each.state is query.state if query.state else not each.state.has_ended)
        ]
        page = found[: min(2, query.page_size)]
        return t.TransactionList(
            transactions=tuple(each.info(self.now_ms()) for each in page),
            next_page_token=page[-1].transaction_id if len(found) > len(page) else "",
        )


def _ended(found: FakeTransaction) -> TransactionEnded:
    return TransactionEnded(
        "the transaction has ended", transaction=found.transaction_id, state=found.state.value
    )
