"""The objects of the cluster: SPU, SPU group, topic, partition. Spec and status, as values.

A *spec* expresses what is wanted, a *status* what is. Kinds, defaults and words are Fluvio's; ADR
15 says how they stand on stores, containers and streams.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

GIB = 1 << 30
UNKNOWN_SPU = -1

S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True)  # `typing` cannot make a frozen generic with slots in Python 3.11
class ClusterObject(Generic[S, T]):
    """An object as it is stored.

    `revision`: that of the object store; 0 before it is stored. `owner`: the key of the parent, ""
    without one. `incarnation`: of a topic and its partitions. `deleting`: a deletion was asked for.
    """

    key: str
    spec: S
    status: T
    owner: str = ""
    incarnation: str = ""
    deleting: bool = False
    revision: int = 0


# --- SPU -------------------------------------------------------------------------------------


class SpuType(StrEnum):
    """MANAGED: a provisioner starts and stops it. CUSTOM: an operator does."""

    MANAGED = "managed"
    CUSTOM = "custom"


class Encryption(StrEnum):
    PLAINTEXT = "plaintext"
    SSL = "ssl"


@dataclass(frozen=True, slots=True)
class Ingress:
    """A name or an address under which clients reach an SPU; the name is used if both are set."""

    hostname: str = ""
    ip: str = ""

    @property
    def host(self) -> str:
        return self.hostname or self.ip


@dataclass(frozen=True, slots=True)
class PublicEndpoint:
    """The endpoint for clients."""

    port: int = 9005
    ingress: tuple[Ingress, ...] = ()
    encryption: Encryption = Encryption.PLAINTEXT


@dataclass(frozen=True, slots=True)
class PrivateEndpoint:
    """The endpoint for other SPUs."""

    host: str = "127.0.0.1"
    port: int = 9006
    encryption: Encryption = Encryption.PLAINTEXT


@dataclass(frozen=True, slots=True)
class SpuSpec:
    """An SPU: a segment store under its node id. `spu_id` is unique over all types.

    `public` and `private`: its endpoints for clients and for other SPUs. `rack`: the failure domain
    that it stands in, "" without one. `storage_size_bytes`: how much its partitions may hold; 0:
    without a limit. `type`: managed or custom.
    """

    spu_id: int
    type: SpuType = SpuType.CUSTOM
    public: PublicEndpoint = PublicEndpoint()
    private: PrivateEndpoint = PrivateEndpoint()
    rack: str = ""
    storage_size_bytes: int = 0


class SpuResolution(StrEnum):
    """INIT: it was registered and never seen."""

    INIT = "init"
    ONLINE = "online"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class SpuStatus:
    resolution: SpuResolution = SpuResolution.INIT


# --- SPU group -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpuGroupSpec:
    """So many managed SPUs with the ids from `min_id` on, named ``<group>-<i>`` from i = 0."""

    replicas: int = 1
    min_id: int = 0
    rack: str = ""
    storage_size_bytes: int = GIB
    env: tuple[tuple[str, str], ...] = ()


class SpuGroupResolution(StrEnum):
    INIT = "init"
    INVALID = "invalid"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class SpuGroupStatus:
    resolution: SpuGroupResolution = SpuGroupResolution.INIT
    reason: str = ""


# --- topic -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Computed:
    """The cluster assigns the replicas."""

    partitions: int = 1
    replication_factor: int = 1
    ignore_racks: bool = False


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """SPU ids, leader first."""

    id: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Assigned:
    """The user assigns the replicas."""

    partitions: tuple[AssignedPartition, ...]


class Compression(StrEnum):
    """The codecs that producers of a topic may use. The system has `none` and `zstd`."""

    ANY = "any"
    NONE = "none"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class Deduplication:
    """How long a repeat of an idempotent producer's record must be recognized: at least `count`
    records of the producer, and those of the last `age_s` seconds (None: no bound by age)."""

    count: int
    age_s: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic is to be.

    `replicas`: how many partitions with how many replicas, or which. `retention_s`: records are
    kept at least so long. `partition_size_max_bytes`: a larger partition loses its oldest records.
    `segment_size_bytes`: the steps in which it does. `compression`: the codecs of its producers.
    `deduplication`: how long repeats are recognized. `system`: lists show it only on request.
    """

    replicas: Computed | Assigned = Computed()
    retention_s: int = 604_800
    segment_size_bytes: int = GIB
    partition_size_max_bytes: int = 100 * GIB
    compression: Compression = Compression.ANY
    deduplication: Deduplication | None = None
    system: bool = False


class TopicResolution(StrEnum):
    INIT = "initializing"
    PENDING = "pending"
    INSUFFICIENT_RESOURCES = "insufficient-resources"
    INVALID_CONFIG = "invalid-config"
    PROVISIONED = "provisioned"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """`replica_map[p]`: the SPU ids of partition p, leader first, as assigned. `containers[p]`: the
    container of partition p. `start`: the index at which the assignment began.

    Equal rows are one in memory, and so are equal containers: a thousand partitions have few.
    """

    resolution: TopicResolution = TopicResolution.INIT
    reason: str = ""
    replica_map: tuple[tuple[int, ...], ...] = ()
    containers: tuple[int, ...] = ()
    start: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "replica_map", _sharing(self.replica_map))
        object.__setattr__(self, "containers", _sharing(self.containers))


def _sharing(values: tuple[V, ...]) -> tuple[V, ...]:
    """The values, with those that are equal as one."""
    first: dict[V, V] = {}
    return tuple(first.setdefault(value, value) for value in values)


# --- partition -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """`leader` is replicas[0] at first, and changes with elections. `container`: where it is."""

    leader: int
    replicas: tuple[int, ...]
    container: int


class PartitionResolution(StrEnum):
    OFFLINE = "offline"
    ONLINE = "online"
    LEADER_OFFLINE = "leader-offline"
    OUT_OF_STORAGE = "out-of-storage"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """What changes by transitions only; record numbers and sizes are reported live.

    `leader`: the SPU that serves it, -1 if none does. `lrs`: the live replicas, leader first.
    `epoch`: the container epoch that the status is of.
    """

    resolution: PartitionResolution = PartitionResolution.OFFLINE
    leader: int = UNKNOWN_SPU
    lrs: tuple[int, ...] = ()
    epoch: int = 0


Spu = ClusterObject[SpuSpec, SpuStatus]
SpuGroup = ClusterObject[SpuGroupSpec, SpuGroupStatus]
Topic = ClusterObject[TopicSpec, TopicStatus]
Partition = ClusterObject[PartitionSpec, PartitionStatus]
