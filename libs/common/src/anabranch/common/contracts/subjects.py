"""Every NATS subject, stream, consumer and KV bucket of the system, in one place.

Names of scopes and streams are one token each: ``.`` is written ``=``, which is injective
because names contain no ``=``. Shard and bucket are the same number (`hashing.shard_of`).
Subjects of gates, children and satellites carry incarnations; an aggregate's own subject does
not, because its tombstone must be found by name.
"""

from anabranch.common.contracts.objects import OBJECT_BUCKETS
from anabranch.common.contracts.place import PARTS, STREAM, Part, Place
from anabranch.common.model.hashing import SHARD_COUNT, shard_of
from anabranch.common.model.names import ScopeName, StreamRef
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.table import TableRef

EVENT_SUBJECT_PREFIX = "ana.evt"
COMMAND_STREAM = "ANA_COMMANDS"
COMMAND_SUBJECTS = "ana.cmd.>"
NOTICE_SUBJECTS = "ana.note.>"
PARKED_STREAM = "ANA_PARKED"
PARKED_SUBJECTS = "ana.parked.>"

NODES_BUCKET = "ana_nodes"
CONTROLLERS_BUCKET = "ana_controllers"
PLACEMENTS_BUCKET = "ana_placements"
CLUSTER_BUCKET = "ana_cluster"
"""Holds `constants`: shard, bucket and container counts, written once; `leader`; and `heads`."""
HEADS_KEY = "heads"
"""The key in that bucket of the points up to which controllers have read each shard."""
_GROUP_MARK = "+"
"""Marks membership records of reader groups; no name contains it."""
_SLOT_DIGITS = 9
TRANSACTION_SLOT_MS = 16**3
"""An id begins with twelve hexadecimal digits of milliseconds."""
METADATA_BUCKETS = (NODES_BUCKET, PLACEMENTS_BUCKET, CLUSTER_BUCKET, *OBJECT_BUCKETS)
"""The buckets whose objects belong to a backup of the metadata."""


def log_stream(log_id: str) -> str:
    """The JetStream stream that is a container's durable log."""
    return f"ANA_LOG_{log_id}"


def log_messages(log_id: str) -> str:
    """All subjects of that stream."""
    return f"ana.log.{log_id}.*"


def log_openings(log_id: str) -> str:
    """The subject of the opening messages in that stream."""
    return f"ana.log.{log_id}.open"


def log_frames(log_id: str) -> str:
    """The subject of the frames in that stream."""
    return f"ana.log.{log_id}.frame"


def token(name: str) -> str:
    """A scope's or stream's name as one subject token."""
    return name.replace(".", "=")


def event_stream(shard: int) -> str:
    """The JetStream stream that holds a shard's domain events."""
    assert 0 <= shard < SHARD_COUNT
    return f"ANA_EVENTS_{shard:02d}"


def event_stream_subjects(shard: int) -> str:
    return f"{EVENT_SUBJECT_PREFIX}.{shard}.>"


def scope_events(scope: ScopeName) -> str:
    """The subject of a scope's own events."""
    return f"{EVENT_SUBJECT_PREFIX}.{shard_of(scope)}.scope.{token(scope)}"


def scope_gate(scope: ScopeName, incarnation: int) -> str:
    """The gate on which creating a child of this scope's incarnation depends."""
    return f"{EVENT_SUBJECT_PREFIX}.{shard_of(scope)}.gate.{token(scope)}.{incarnation}"


def scope_member(scope: ScopeName, incarnation: int, stream: str, stream_incarnation: int) -> str:
    """The membership record of one incarnation of a stream in one incarnation of a scope."""
    start = f"{EVENT_SUBJECT_PREFIX}.{shard_of(scope)}.member.{token(scope)}.{incarnation}"
    return f"{start}.{token(stream)}.{stream_incarnation}"


def scope_group_member(
    scope: ScopeName, incarnation: int, group: str, group_incarnation: int
) -> str:
    """The membership record of a reader group, distinct from a stream's of the same name."""
    return scope_member(scope, incarnation, f"{_GROUP_MARK}{group}", group_incarnation)


def part_member(place: Place, scope_incarnation: int, incarnation: int) -> str:
    """The membership record of any part of a scope."""
    assert place.part is not None
    name = f"{place.part.mark}{place.part_name}"
    return scope_member(ScopeName(place.scope), scope_incarnation, name, incarnation)


def scope_members(scope: ScopeName, incarnation: int) -> str:
    """All membership records in one incarnation of a scope."""
    return f"{EVENT_SUBJECT_PREFIX}.{shard_of(scope)}.member.{token(scope)}.{incarnation}.>"


def member_name(member: str) -> str:
    """The name of the stream, group or table in a membership record."""
    return member.split(".")[6].removeprefix(member_part(member).mark).replace("=", ".")


def is_group_member(member: str) -> bool:
    """Whether a membership record belongs to a reader group."""
    return member.split(".")[6].startswith(_GROUP_MARK)


def member_part(member: str) -> Part:
    """The kind of part in a membership record."""
    marked = member.split(".")[6]
    return next((p for p in PARTS if p.mark and marked.startswith(p.mark)), STREAM)


def stream_history(stream: StreamRef, incarnation: int, chunk: int) -> str:
    """A history chunk of one incarnation of a stream; they are numbered from 0."""
    shard = shard_of(str(stream))
    start = f"{EVENT_SUBJECT_PREFIX}.{shard}.history.{token(stream.scope)}.{token(stream.stream)}"
    return f"{start}.{incarnation}.{chunk}"


def stream_events(stream: StreamRef) -> str:
    """The subject of a stream's own events."""
    shard = shard_of(str(stream))
    return f"{EVENT_SUBJECT_PREFIX}.{shard}.stream.{token(stream.scope)}.{token(stream.stream)}"


def group_events(group: GroupRef) -> str:
    """The subject of a reader group's own events."""
    return (
        f"{EVENT_SUBJECT_PREFIX}.{shard_of(str(group))}.rg"
        f".{token(group.scope)}.{token(group.group)}"
    )


def table_events(table: TableRef) -> str:
    """The subject of a key-value table's own events."""
    return events_of(Place(table.scope, table=table.table))


def events_of(place: Place) -> str:
    """The subject of the events of a scope, or of a part of it."""
    start = f"{EVENT_SUBJECT_PREFIX}.{shard_of(str(place))}"
    if place.part is None:
        return f"{start}.scope.{token(place.scope)}"
    return f"{start}.{place.part.word}.{token(place.scope)}.{token(str(place.part_name))}"


def transaction_events(stream: StreamRef, incarnation: int, transaction: str) -> str:
    """The subject of one transaction of one incarnation of a stream, in the stream's shard.

    The time at which the id was drawn comes before the names, so that ended transactions can be
    deleted slot by slot: deleting a thousand subjects at once costs as much as deleting one.
    """
    shard, slot = shard_of(str(stream)), transaction[:_SLOT_DIGITS]
    names = f"{token(stream.scope)}.{token(stream.stream)}.{incarnation}.{transaction}"
    return f"{EVENT_SUBJECT_PREFIX}.{shard}.txn.{slot}.{names}"


def transaction_slot(transaction: str) -> str:
    """The pattern of the slot of a transaction's subject: the transactions of the shard whose ids
    were drawn within the same `TRANSACTION_SLOT_MS`."""
    return f"{'.'.join(transaction.split('.', 5)[:5])}.>"


def transaction_slot_ms(slot: str) -> int:
    """The time at which the slot with this pattern began, by the clocks that the ids come from."""
    return int(slot.split(".")[4], 16) * TRANSACTION_SLOT_MS


def transaction_gate(stream: StreamRef, incarnation: int) -> str:
    """The gate on which opening a transaction depends."""
    return _of_stream(stream, "txngate", incarnation)


def transaction_key(stream: StreamRef, incarnation: int, application: str) -> str:
    """The subject of an application's commits to one incarnation of a stream."""
    return f"{_of_stream(stream, 'txnkey', incarnation)}.{token(application)}"


def transaction_outcomes(stream: StreamRef, incarnation: int, chunk: int) -> str:
    """A chunk of outcomes of transactions; they are numbered from 0."""
    return f"{_of_stream(stream, 'txnout', incarnation)}.{chunk}"


def transaction_leftovers(stream: StreamRef, incarnation: int) -> tuple[str, ...]:
    """Patterns of the subjects that are deleted with an incarnation of a stream: applications and
    outcomes. The gate stays, because it refuses late requests; transactions go with their slots."""
    return tuple(f"{_of_stream(stream, kind, incarnation)}.>" for kind in ("txnkey", "txnout"))


def _of_stream(stream: StreamRef, kind: str, incarnation: int) -> str:
    start = f"{EVENT_SUBJECT_PREFIX}.{shard_of(str(stream))}.{kind}"
    return f"{start}.{token(stream.scope)}.{token(stream.stream)}.{incarnation}"


def matches(pattern: str, subject: str) -> bool:
    """Whether the pattern equals the subject, or ends in ``.>`` and is a prefix of the subject."""
    if pattern.endswith(".>"):
        return subject.startswith(pattern[:-1]) and len(subject) >= len(pattern)
    return subject == pattern


def shard_of_subject(subject: str) -> int:
    """The shard of any event subject."""
    return int(subject.split(".", 3)[2])


def kind_of_subject(subject: str) -> str:
    """The kind of an event subject: the word after the shard, such as `stream` or `gate`."""
    return subject.split(".", 4)[3]


def command(bucket: int, kind: str, scope: str, part: str | None = None) -> str:
    """The subject of a command about a scope, or (`part`) about a stream, group or table in it."""
    start = f"ana.cmd.{bucket}.{kind}.{token(scope)}"
    return f"{start}.{token(part)}" if part is not None else start


def command_filter(bucket: int) -> str:
    return f"ana.cmd.{bucket}.>"


def command_consumer(bucket: int) -> str:
    """The durable consumer of a bucket's commands."""
    return f"bucket-{bucket:02d}"


def parked_command(bucket: int, command_id: str) -> str:
    """The subject that keeps a parked command."""
    return f"ana.parked.{bucket}.{command_id}"


def parked_filter(command_id: str) -> str:
    """The pattern of a parked command with this id, in any bucket."""
    return f"ana.parked.*.{command_id}"


def query(name: str) -> str:
    """The subject of a query; controllers answer in the queue group `QUERY_GROUP`."""
    return f"ana.qry.{name}"


QUERY_GROUP = "controllers"
_DIRECT_PREFIX = "ana.ctl."


def direct_query(controller_id: str, name: str) -> str:
    """The subject of a query to one controller alone; `*` stands for every name."""
    return f"{_DIRECT_PREFIX}{controller_id}.{name}"


def asked_controller(subject: str) -> str:
    """The controller in a `direct_query` subject; "" for any other subject."""
    if not subject.startswith(_DIRECT_PREFIX):
        return ""
    return subject.removeprefix(_DIRECT_PREFIX).rpartition(".")[0]


def operation_notice(operation: str) -> str:
    """The subject on which a controller announces the end of an operation."""
    return f"ana.note.op.{operation}"


def load_report(node_id: str) -> str:
    """The subject of a segment store's load reports; `*` stands for every store."""
    return f"ana.load.{node_id}"


def live_report(node_id: str) -> str:
    """The subject of a store's live reports about partitions; `*` stands for every store."""
    return f"ana.live.{node_id}"


def promise_request(node_id: str) -> str:
    """The subject on which a segment store is asked to promise a container epoch (`elections`)."""
    return f"ana.copy.{node_id}.promise"


def segment_request(container: int, verb: str) -> str:
    """The subject of requests (`segment_requests`) to the store that serves the container."""
    return f"ana.seg.{container}.{verb}"
