"""The dependencies of workflow steps, and their shared functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.contracts.place import PARTS, STREAM, Part, Place
from anabranch.common.contracts.subjects import (
    member_name,
    member_part,
    part_member,
    scope_group_member,
    scope_member,
    scope_members,
)
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.kv_table.state import KvTable
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.ports import (
    CommandSender,
    GroupListing,
    OutcomeChunks,
    SegmentStores,
    StreamHistories,
    StreamListing,
    TransactionListing,
    WriterTimes,
)
from anabranch.controller.workflows.repositories import Repositories

SEGMENT_REQUESTS_MAX = 32
"""Concurrent requests of one step to segment stores."""
OPEN_REVISION, ABORT_REVISION = 1, 2
"""Stamps of requests on a transaction's segments. A batch of commits has a later one, because the
stream was created before. A transaction has one outcome, so a commit and an abort never meet.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkContext:
    """The dependencies of the steps.

    `stores`: the segment stores. `repositories`: the stored aggregates; `streams`, `groups` and
    `listing` (of transactions): the aggregates as the mirror has folded them. `histories` and
    `outcomes`: the chunks that left the streams' states. `gates`: of scopes and streams.
    `commands`: the queue that callers use too. `writer_times`: None without Redis.
    `outcomes_kept_ms`: the minimum time for which outcomes of transactions are remembered.
    """

    stores: SegmentStores
    repositories: Repositories
    streams: StreamListing
    groups: GroupListing
    listing: TransactionListing
    histories: StreamHistories
    outcomes: OutcomeChunks
    gates: Gates
    commands: CommandSender
    clock: Clock
    writer_times: WriterTimes | None
    outcomes_kept_ms: int


def membership_of(stream: Stream) -> str:
    """The subject of the stream's membership record in its scope."""
    assert stream.ref is not None
    return scope_member(
        stream.ref.scope, stream.scope_incarnation, stream.ref.stream, stream.incarnation
    )


def group_membership_of(group: ReaderGroup) -> str:
    """The subject of the group's membership record in its scope."""
    assert group.ref is not None
    return scope_group_member(
        group.ref.scope, group.scope_incarnation, group.ref.group, group.incarnation
    )


def table_membership_of(table: KvTable) -> str:
    """The subject of the key-value table's membership record in its scope."""
    assert table.ref is not None
    place = Place(table.ref.scope, table=table.ref.table)
    return part_member(place, table.scope_incarnation, table.incarnation)


Remaining = Mapping[Part, list[str]]
"""The names left in a scope, sorted, by kind; streams come last."""


async def remaining_in(context: WorkContext, scope: ScopeName, incarnation: int) -> Remaining:
    """Everything in a scope whose gate is closed.

    The listing adds streams whose creation has not reached the gate, or that are older than the
    membership records, and parts whose deletion has ended the record but not yet the part. All
    others are recorded; a creation that reaches the gate later fails.
    """
    members = await context.gates.members(scope_members(scope, incarnation))
    live = await context.streams.live_parts(scope, incarnation)
    found = {part: set(live.get(part, ())) for part in (*PARTS[1:], STREAM)}
    for member in members:
        found[member_part(member)].add(member_name(member))
    return {part: sorted(names) for part, names in found.items()}


async def seal_all(context: WorkContext, names: Sequence[str], stamp: Stamp) -> tuple[int, ...]:
    """Seal the segments concurrently; returns their final lengths in bytes, in the given order."""
    lengths: dict[str, int] = {}

    async def seal(segment: str) -> None:
        lengths[segment] = await context.stores.seal_segment(segment, stamp)

    await for_each(names, SEGMENT_REQUESTS_MAX, seal)
    return tuple(lengths[name] for name in names)


def stamp_of(loaded: Loaded[Stream]) -> Stamp:
    """The stamp of requests that perform the last decision on the stream.

    It is the stamp of the performed intent. It stays the same however often the step repeats, even
    if other commands join the intent. Every later intent has a higher stamp, so a store refuses a
    request of a step that another controller has overtaken.
    """
    return Stamp(loaded.state.incarnation, loaded.state.intents[0].revision)


def table_stamp_of(loaded: Loaded[KvTable]) -> Stamp:
    """The stamp of requests that perform the pending intent of a key-value table; as `stamp_of`."""
    return Stamp(loaded.state.incarnation, loaded.state.revision)
