"""Topics, partitions, consumers, SPUs and SPU groups as rows and records. Pure.

The columns have the names and the order of Fluvio's command.
"""

from collections.abc import Sequence

from anabranch.cli.figures import NONE, duration, moment, size
from anabranch.client.topics.consumers import ConsumerOffset
from anabranch.common.contracts.spus import SpuGroupDescription
from anabranch.common.contracts.topics import (
    PartitionDescription,
    PlannedMove,
    TopicDescription,
)
from anabranch.common.model.objects import (
    Assigned,
    Computed,
    Deduplication,
    PrivateEndpoint,
    PublicEndpoint,
)

TOPIC_COLUMNS = (
    "name", "type", "partitions", "replicas", "retention time", "compression", "deduplication",
    "status", "reason",
)  # fmt: skip
PARTITION_COLUMNS = (
    "topic", "partition", "leader", "replicas", "resolution", "size", "base", "hw", "leo", "lrs",
    "follower offsets",
)  # fmt: skip
MAP_COLUMNS = ("id", "leader", "replicas", "live-replicas", "resolution")
NEW_PARTITION_COLUMNS = ("partition", "spu")
CONSUMER_COLUMNS = ("consumer", "topic", "partition", "offset", "last seen")
GROUP_COLUMNS = ("name", "replicas", "min id", "rack", "size", "status")
MOVE_COLUMNS = ("container", "partitions", "before", "after", "state")
SIZES_UNKNOWN = {-1: "error", -2: NONE}


def ids(found: Sequence[int]) -> str:
    """``[5001, 5002]``."""
    return f"[{', '.join(map(str, found))}]"


def known(number: int) -> str:
    """A number that is not negative if it is known."""
    return NONE if number < 0 else str(number)


def topic_row(one: TopicDescription) -> tuple[str, ...]:
    """Same order as `TOPIC_COLUMNS`."""
    return (
        one.topic,
        type_of(one),
        str(one.partition_count),
        str(one.replication_factor),
        duration(one.spec.retention_s * 1000),
        one.spec.compression.value,
        deduplication(one.spec.deduplication),
        f"resolution::{status_of(one)}",
        one.reason,
    )


def type_of(one: TopicDescription) -> str:
    return "assigned" if isinstance(one.spec.replicas, Assigned) else "computed"


def status_of(one: TopicDescription) -> str:
    return "deleting" if one.deleting else one.resolution.value


def deduplication(found: Deduplication | None) -> str:
    """``none``, ``count=5``, ``count=5, age=10 s``."""
    if found is None:
        return "none"
    age = "" if found.age_s is None else f", age={duration(found.age_s * 1000)}"
    return f"count={found.count}{age}"


def topic_details(one: TopicDescription) -> list[tuple[str, str]]:
    """The properties of a topic, for people."""
    spec, bounds = one.spec, one.spec.deduplication
    ignores = isinstance(spec.replicas, Computed) and spec.replicas.ignore_racks
    age_s = None if bounds is None else bounds.age_s
    return [
        ("Name", one.topic),
        ("Type", type_of(one)),
        ("Partition Count", str(one.partition_count)),
        ("Partitions Online", str(one.partitions_online)),
        ("Replication Factor", str(one.replication_factor)),
        ("Ignore Rack Assignment", "true" if ignores else "-"),
        ("Retention Time", duration(spec.retention_s * 1000)),
        ("Segment Size", size(spec.segment_size_bytes)),
        ("Max Partition Size", size(spec.partition_size_max_bytes)),
        ("Compression", spec.compression.value),
        ("Deduplication Count Bound", "-" if bounds is None else str(bounds.count)),
        ("Deduplication Age Bound", "-" if age_s is None else duration(age_s * 1000)),
        ("System", "true" if spec.system else "-"),
        ("Status", status_of(one)),
        ("Reason", one.reason or "-"),
        ("Stream", f"{one.scope}/{one.stream}"),
    ]


def map_row(one: PartitionDescription) -> tuple[str, ...]:
    """Same order as `MAP_COLUMNS`."""
    return (
        str(one.partition),
        known(one.leader),
        ids(one.replicas),
        ids(one.lrs),
        one.resolution.value,
    )


def partition_row(one: PartitionDescription) -> tuple[str, ...]:
    """Same order as `PARTITION_COLUMNS`."""
    live = one.leader_live
    followers = ", ".join(f"{each.spu}: {known(each.leo)}" for each in one.followers_live)
    return (
        one.topic,
        str(one.partition),
        known(one.leader),
        ids(one.replicas),
        "deleting" if one.deleting else one.resolution.value,
        SIZES_UNKNOWN.get(one.size_bytes) or size(one.size_bytes),
        known(one.base),
        NONE if live is None else known(live.hw),
        NONE if live is None else known(live.leo),
        ids(one.lrs),
        f"[{followers}]",
    )


def new_partition_row(one: PartitionDescription) -> tuple[str, ...]:
    """Same order as `NEW_PARTITION_COLUMNS`."""
    return str(one.partition), ids(one.replicas)


def group_row(one: SpuGroupDescription) -> tuple[str, ...]:
    """Same order as `GROUP_COLUMNS`."""
    status = "deleting" if one.deleting else one.resolution.value
    return (
        one.name,
        str(one.spec.replicas),
        str(one.spec.min_id),
        one.spec.rack or NONE,
        size(one.spec.storage_size_bytes) if one.spec.storage_size_bytes else "no limit",
        f"{status}: {one.reason}" if one.reason else status,
    )


def move_row(one: PlannedMove) -> tuple[str, ...]:
    """Same order as `MOVE_COLUMNS`."""
    return (
        str(one.container), str(one.partitions), ids(one.before), ids(one.after), one.state,
    )  # fmt: skip


def public_place(found: PublicEndpoint) -> str:
    """``host:port``, with the encryption if there is one."""
    hosts = [each.host for each in found.ingress] or ["-"]
    return ", ".join(_place(host, found.port, found.encryption.value) for host in hosts)


def private_place(found: PrivateEndpoint) -> str:
    """``host:port``, with the encryption if there is one."""
    return _place(found.host, found.port, found.encryption.value)


def _place(host: str, port: int, encryption: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" + ("" if encryption == "plaintext" else f" ({encryption})")


def consumer_row(one: ConsumerOffset) -> tuple[str, ...]:
    """Same order as `CONSUMER_COLUMNS`."""
    seen = moment(one.last_seen_ms) if one.last_seen_ms > 0 else NONE
    return one.consumer, one.topic, str(one.partition), known(one.offset), seen
