"""SPUs, SPU groups, topics and partitions as a controller sees them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.cli.doctor.finding import Finding, failure, listed, ok, warning
from anabranch.cli.figures import counted
from anabranch.common.contracts.spus import SpuDescription, SpuGroupDescription
from anabranch.common.contracts.topics import PartitionDescription, TopicDescription
from anabranch.common.model.objects import (
    PartitionResolution,
    SpuGroupResolution,
    SpuResolution,
    TopicResolution,
)

_NAMES_SHOWN = 3
RESOLVING = (TopicResolution.INIT, TopicResolution.PENDING)
PARTITION_REMEDIES = {
    PartitionResolution.OFFLINE: "wait some seconds; then look at the SPUs: `anabranch spu list`",
    PartitionResolution.LEADER_OFFLINE: "start the SPUs of their replicas: `anabranch spu list`",
    PartitionResolution.OUT_OF_STORAGE: "keep less (`anabranch topic update TOPIC "
    "--retention-time 1d`), or give the SPUs more storage",
}


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics; `more`: there are further ones. `troubled`: the partitions that are not online, of
    the first topics that have such ones."""

    topics: tuple[TopicDescription, ...]
    troubled: tuple[PartitionDescription, ...] = ()
    more: bool = False


def spus(found: Sequence[SpuDescription]) -> Finding:
    """Whether every registered SPU is online, and no store was refused."""
    refused = [one.name for one in found if one.refused]
    registered = [one for one in found if not one.refused]
    online = [one for one in registered if one.resolution is SpuResolution.ONLINE]
    if not registered and not refused:
        return ok("no SPU is registered")
    told = f"{len(online)} of {counted(len(registered), 'SPU')} online"
    if refused:
        return warning(
            f"{told}; refused, because they are not registered: {listed(refused, _NAMES_SHOWN)}",
            "register them (`anabranch spu register --help`), or stop them",
        )
    away = [_spu(one) for one in registered if one not in online and not one.deleting]
    if away:
        return warning(f"{told}; away: {listed(away, _NAMES_SHOWN)}", "start their segment stores")
    return ok(told)


def spu_groups(found: Sequence[SpuGroupDescription]) -> Finding:
    """Whether every SPU group is valid."""
    invalid = [one for one in found if one.resolution is SpuGroupResolution.INVALID]
    if not invalid:
        return ok(f"{counted(len(found), 'SPU group')}, none invalid" if found else "no SPU group")
    told = listed([f"{one.name} ({one.reason})" for one in invalid], _NAMES_SHOWN)
    return failure(
        f"{counted(len(invalid), 'SPU group')} invalid: {told}",
        "unregister the SPUs with these ids, or create the group again with another --min-id",
    )


def topics(found: Topics) -> Finding:
    """Whether every topic has its resources."""
    waiting = [
        one
        for one in found.topics
        if one.resolution is not TopicResolution.PROVISIONED and not one.deleting
    ]
    count = f"{len(found.topics)}{' or more' if found.more else ''} topics"
    if not waiting:
        return ok(f"{count}, all provisioned" if found.topics else "no topic")
    told = listed([_topic(one) for one in waiting], _NAMES_SHOWN)
    text = f"{len(waiting)} of {count} are not provisioned: {told}"
    if any(one.resolution is TopicResolution.INVALID_CONFIG for one in waiting):
        return failure(text, "delete the topic, and create it with a valid configuration")
    if all(one.resolution in RESOLVING for one in waiting):
        return warning(text, "wait some seconds")
    return warning(text, "start or register more SPUs: `anabranch spu list`")


def partitions(found: Topics) -> Finding:
    """Whether every partition of the provisioned topics is online."""
    lacking = [
        one
        for one in found.topics
        if one.resolution is TopicResolution.PROVISIONED
        and one.partitions_online < one.partition_count
        and not one.deleting
    ]
    if not lacking:
        online = sum(one.partitions_online for one in found.topics)
        return ok(f"{counted(online, 'partition')}, all online" if online else "no partition")
    missing = sum(one.partition_count - one.partitions_online for one in lacking)
    shown = [_partition(one) for one in found.troubled] or [one.topic for one in lacking]
    text = f"{counted(missing, 'partition')} not online: {listed(shown, _NAMES_SHOWN)}"
    first = found.troubled[0].resolution if found.troubled else PartitionResolution.OFFLINE
    return failure(
        text, PARTITION_REMEDIES.get(first, PARTITION_REMEDIES[PartitionResolution.OFFLINE])
    )


def _spu(one: SpuDescription) -> str:
    return f"{one.name} ({one.spec.spu_id}, {one.resolution.value})"


def _topic(one: TopicDescription) -> str:
    reason = f": {one.reason}" if one.reason else ""
    return f"{one.topic} is {one.resolution.value}{reason}"


def _partition(one: PartitionDescription) -> str:
    return f"{one.topic}-{one.partition} is {one.resolution.value} (SPUs {_ids(one)})"


def _ids(one: PartitionDescription) -> str:
    return ", ".join(map(str, one.replicas))
