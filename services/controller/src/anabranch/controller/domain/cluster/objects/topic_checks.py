"""The checks of a topic's spec, with Fluvio's reasons word by word. Pure.

A fault of the spec itself makes the topic `invalid-config`, and a request with such a spec is
refused. Too few SPUs are no fault: the topic then waits for resources.
"""

from anabranch.common.errors import InvalidTopic
from anabranch.common.model.objects import Assigned, Computed, TopicSpec
from anabranch.common.model.topics import PARTITION_COUNT_MAX
from anabranch.controller.domain.cluster.objects.assignment import manual

RETENTION_S_MIN = 10
SEGMENT_SIZE_BYTES_MIN = 1024
PARTITION_SIZE_BYTES_MIN = 2048


def fault_of(spec: TopicSpec) -> str:
    """Why the spec is wrong; "" if it is not. The configuration comes first, then the replicas."""
    return config_fault_of(spec) or replicas_fault_of(spec)


def require_valid(topic: str, spec: TopicSpec) -> None:
    """Raises InvalidTopic."""
    why = fault_of(spec)
    if why:
        raise InvalidTopic(why, topic=topic, why=why)


def config_fault_of(spec: TopicSpec) -> str:
    """Why retention, sizes or deduplication are wrong; "" if they are not."""
    segment, partition = spec.segment_size_bytes, spec.partition_size_max_bytes
    if spec.retention_s < RETENTION_S_MIN:
        return f"retention_secs {spec.retention_s} is less than minimum {RETENTION_S_MIN}"
    if segment < SEGMENT_SIZE_BYTES_MIN:
        return f"segment_size {segment} is less than minimum {SEGMENT_SIZE_BYTES_MIN}"
    if partition < PARTITION_SIZE_BYTES_MIN:
        return f"max_partition_size {partition} is less than minimum {PARTITION_SIZE_BYTES_MIN}"
    if partition < segment:
        return f"max_partition_size {partition} is less than segment size {segment}"
    if spec.deduplication is not None and spec.deduplication.count < 1:
        return "count must be non-zero"
    if spec.deduplication is not None and (spec.deduplication.age_s or 0) < 0:
        return "age must not be negative"
    return ""


def replicas_fault_of(spec: TopicSpec) -> str:
    """Why partitions or replicas are wrong; "" if they are not."""
    match spec.replicas:
        case Computed(partitions, factor, _):
            if partitions < 1:
                return "partition must be greater than 0"
            if factor < 1:
                return "replication factor must be greater than 0"
        case Assigned(rows):
            partitions = len(rows)
            fault = manual.fault_of(rows)
            if fault:
                return fault
    if partitions > PARTITION_COUNT_MAX:
        return f"partition must not be greater than {PARTITION_COUNT_MAX}"
    return ""


def grown(topic: str, spec: TopicSpec, count: int) -> TopicSpec:
    """The spec with so many more partitions. Raises InvalidTopic, with Fluvio's reasons."""
    match spec.replicas:
        case Computed(partitions, factor, ignore_racks) if not spec.system:
            after = TopicSpec(
                Computed(partitions + count, factor, ignore_racks),
                spec.retention_s,
                spec.segment_size_bytes,
                spec.partition_size_max_bytes,
                spec.compression,
                spec.deduplication,
            )
            why = replicas_fault_of(after) if count > 0 else "count must be non-zero"
        case Computed():
            after, why = spec, "partitions cannot be added to a system topic"
        case Assigned():
            after, why = spec, "invalid replica type"
    if why:
        raise InvalidTopic(why, topic=topic, why=why)
    return after
