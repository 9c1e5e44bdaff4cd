"""SPUs, SPU groups, topics and partitions as the object store holds them: JSON of a schema.

Each kind has a bucket; the key is the object's name. A decoder refuses newer schemas by name and
damage as Corrupt. msgspec reads ten thousand of them in a fraction of a second.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import msgspec

from anabranch.common.errors import Corrupt, FormatTooNew
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.objects import (
    Assigned,
    ClusterObject,
    Compression,
    Computed,
    Deduplication,
    PartitionSpec,
    PartitionStatus,
    SpuGroupSpec,
    SpuGroupStatus,
    SpuSpec,
    SpuStatus,
    TopicSpec,
    TopicStatus,
)
from anabranch.common.wire.malformed import MALFORMED

S = TypeVar("S")
T = TypeVar("T")

SPUS_BUCKET = "ana_spus"
SPU_GROUPS_BUCKET = "ana_spu_groups"
TOPICS_BUCKET = "ana_topics"
PARTITIONS_BUCKET = "ana_partitions"
DOOMED_BUCKET = "ana_doomed_topics"
"""The backing streams that are to be deleted: key = the topic's incarnation, value = `Doomed`."""
CONSUMERS_BUCKET = "ana_consumers"
"""The named consumers: key = ``<incarnation>.<consumer>``, value = `NamedConsumer`."""
OBJECT_BUCKETS = (
    SPUS_BUCKET, SPU_GROUPS_BUCKET, TOPICS_BUCKET, PARTITIONS_BUCKET, DOOMED_BUCKET,
    CONSUMERS_BUCKET,
)  # fmt: skip
TOPIC_CONTAINERS_KEY = "topic-containers"
"""In the bucket of the cluster's constants: `TopicContainers`."""
TOPIC_REBALANCE_KEY = "topic-rebalance"
"""In the same bucket: `TopicRebalance`."""


class _Wire(msgspec.Struct, Generic[S, T], frozen=True, omit_defaults=True):
    """`spec` may be in a form of its own: see `ObjectKind.stored_spec`."""

    schema_number: int
    spec: S
    status: T
    owner: str = ""
    incarnation: str = ""
    deleting: bool = False


class _Head(msgspec.Struct, frozen=True):
    schema_number: int


class _StoredTopicSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A `TopicSpec`; either `computed` or `assigned` is set, because JSON names no types."""

    retention_s: int
    segment_size_bytes: int
    partition_size_max_bytes: int
    compression: Compression
    computed: Computed | None = None
    assigned: Assigned | None = None
    deduplication: Deduplication | None = None
    system: bool = False

    @classmethod
    def of(cls, spec: TopicSpec) -> "_StoredTopicSpec":
        replicas = spec.replicas
        return cls(
            spec.retention_s,
            spec.segment_size_bytes,
            spec.partition_size_max_bytes,
            spec.compression,
            replicas if isinstance(replicas, Computed) else None,
            replicas if isinstance(replicas, Assigned) else None,
            spec.deduplication,
            spec.system,
        )

    def spec(self) -> TopicSpec:
        replicas = self.computed or self.assigned
        if replicas is None:
            raise msgspec.ValidationError("the spec of a topic names no replicas")
        return TopicSpec(
            replicas,
            self.retention_s,
            self.segment_size_bytes,
            self.partition_size_max_bytes,
            self.compression,
            self.deduplication,
            self.system,
        )


_heads = msgspec.json.Decoder(_Head)
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ObjectKind(Generic[S, T]):
    """A kind of object. A new kind is a new record here."""

    word: str
    """As users read it."""
    bucket: str
    schema_number: int
    decoder: "msgspec.json.Decoder[_Wire[Any, T]]"
    stored_spec: Callable[[S], object] = lambda spec: spec
    """The spec in the form in which it is stored, and its inverse."""
    spec_of: Callable[[Any], S] = lambda stored: cast("S", stored)

    def to_bytes(self, found: ClusterObject[S, T]) -> bytes:
        """The object as stored; the revision is the store's."""
        return _encoder.encode(
            _Wire(
                self.schema_number,
                self.stored_spec(found.spec),
                found.status,
                found.owner,
                found.incarnation,
                found.deleting,
            )
        )

    def from_stored(self, stored: StoredObject) -> ClusterObject[S, T]:
        """Inverse of `to_bytes`, with key and revision. Raises FormatTooNew, Corrupt."""
        try:
            schema = _heads.decode(stored.value).schema_number
            if schema > self.schema_number:
                raise FormatTooNew(
                    f"a stored {self.word} was written by a newer release",
                    name=stored.key, found=schema, supported=self.schema_number,
                )  # fmt: skip
            wire = self.decoder.decode(stored.value)
            spec = self.spec_of(wire.spec)
        except MALFORMED as error:
            raise Corrupt(
                f"a stored {self.word} is damaged",
                remedy="restore the metadata: `anabranch controller restore URL`",
                name=stored.key,
            ) from error
        return ClusterObject(
            stored.key,
            spec,
            wire.status,
            wire.owner,
            wire.incarnation,
            wire.deleting,
            stored.revision,
        )


def _decoder(wire: Any) -> Any:
    return cast("Any", msgspec.json.Decoder(wire))


SPU: ObjectKind[SpuSpec, SpuStatus] = ObjectKind(
    "SPU", SPUS_BUCKET, 1, _decoder(_Wire[SpuSpec, SpuStatus])
)
SPU_GROUP: ObjectKind[SpuGroupSpec, SpuGroupStatus] = ObjectKind(
    "SPU group", SPU_GROUPS_BUCKET, 1, _decoder(_Wire[SpuGroupSpec, SpuGroupStatus])
)
TOPIC: ObjectKind[TopicSpec, TopicStatus] = ObjectKind(
    "topic",
    TOPICS_BUCKET,
    1,
    _decoder(_Wire[_StoredTopicSpec, TopicStatus]),
    _StoredTopicSpec.of,
    _StoredTopicSpec.spec,
)
PARTITION: ObjectKind[PartitionSpec, PartitionStatus] = ObjectKind(
    "partition", PARTITIONS_BUCKET, 1, _decoder(_Wire[PartitionSpec, PartitionStatus])
)
KINDS: tuple[ObjectKind[Any, Any], ...] = (SPU, SPU_GROUP, TOPIC, PARTITION)


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A small object of one schema, stored as JSON."""

    schema_number: int = 1

    def to_bytes(self) -> bytes:
        return _encoder.encode(self)


class Doomed(_Record, frozen=True, kw_only=True):
    """A backing stream that is sealed, deleted, and then forgotten. `since_ms`: Unix time."""

    topic: str
    incarnation: str
    since_ms: int


class NamedConsumer(_Record, frozen=True, kw_only=True):
    """A consumer that has committed offsets of a topic's incarnation."""

    topic: str
    incarnation: str
    consumer: str
    created_ms: int


class TopicContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A topic container and its stores as assigned, leader first; node ids."""

    container: int
    nodes: tuple[str, ...]


class TopicContainers(_Record, frozen=True, kw_only=True):
    """The containers of topics, by number, and the index at which the next assignment begins."""

    containers: tuple[TopicContainer, ...] = ()
    cursor: int = 0


class MoveOfContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A topic container's stores before and after, leader first; node ids."""

    container: int
    before: tuple[str, ...]
    after: tuple[str, ...]


class TopicRebalance(_Record, frozen=True, kw_only=True):
    """The last rebalancing of topics. `ended`: all its moves were performed, or given up."""

    moves: tuple[MoveOfContainer, ...] = ()
    ended: bool = False


R = TypeVar("R", Doomed, NamedConsumer, TopicContainers, TopicRebalance)


def record_from(kind: type[R], stored: StoredObject) -> R:
    """A stored record. Raises FormatTooNew, Corrupt."""
    try:
        schema = _heads.decode(stored.value).schema_number
        if schema > 1:
            raise FormatTooNew(
                f"a stored {kind.__name__} was written by a newer release",
                name=stored.key, found=schema, supported=1,
            )  # fmt: skip
        return msgspec.json.decode(stored.value, type=kind)
    except MALFORMED as error:
        raise Corrupt(
            f"a stored {kind.__name__} is damaged",
            remedy="restore the metadata: `anabranch controller restore URL`",
            name=stored.key,
        ) from error


def with_spec(found: ClusterObject[S, T], spec: S) -> ClusterObject[S, T]:
    """The object with another spec."""
    return replace(found, spec=spec)


def with_status(found: ClusterObject[S, T], status: T) -> ClusterObject[S, T]:
    """The object with another status."""
    return replace(found, status=status)
