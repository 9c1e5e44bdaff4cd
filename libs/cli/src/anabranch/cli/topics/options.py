"""The options that describe a topic, and their effect on its spec. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter

from anabranch.common.model.objects import (
    Assigned,
    Compression,
    Computed,
    Deduplication,
    TopicSpec,
)
from anabranch.common.model.quantities import duration_s, size_bytes

DEDUP_COUNT_DEFAULT = 5
FOREIGN_CODECS = ("gzip", "snappy", "lz4")


def _check_codec(_type: object, codec: str | None) -> None:
    if codec in FOREIGN_CODECS:
        raise ValueError(f"the codec {codec} is not available; use any, none or zstd")
    if codec is not None and codec not in tuple(Compression):
        raise ValueError("use any, none or zstd")


@Parameter(name="*")
@dataclass(frozen=True)
class KeepingOptions:
    """How long a topic keeps records, and how. Omitted options keep their present values, or the
    defaults of a new topic."""

    retention_time: str | None = None
    "Keep records at least so long, e.g. 12h, 3d; a new topic keeps them for 7d."
    segment_size: str | None = None
    "The steps in which a partition that is too large loses its oldest records; 1GiB for a new one."
    max_partition_size: str | None = None
    "A larger partition loses its oldest records; 100GiB for a new topic."
    compression_type: Annotated[str | None, Parameter(validator=_check_codec)] = None
    "The codecs that producers may use: any, none or zstd; any for a new topic."
    dedup_count: int | None = None
    "Recognize the repetition of each of a producer's last so many records (5 with --dedup-age)."
    dedup_age: str | None = None
    "Recognize the repetition of records that are not older than this, e.g. 5s."

    @property
    def deduplication(self) -> Deduplication | None:
        if self.dedup_count is None and self.dedup_age is None:
            return None
        count = DEDUP_COUNT_DEFAULT if self.dedup_count is None else self.dedup_count
        return Deduplication(count, None if self.dedup_age is None else duration_s(self.dedup_age))


def changes(options: KeepingOptions) -> Mapping[str, Any]:
    """The fields of a spec that the options name, with their values. Raises InvalidRequest."""
    found: dict[str, Any] = {}
    if options.retention_time is not None:
        found["retention_s"] = duration_s(options.retention_time)
    if options.segment_size is not None:
        found["segment_size_bytes"] = size_bytes(options.segment_size)
    if options.max_partition_size is not None:
        found["partition_size_max_bytes"] = size_bytes(options.max_partition_size)
    if options.compression_type is not None:
        found["compression"] = Compression(options.compression_type)
    if options.deduplication is not None:
        found["deduplication"] = options.deduplication
    return found


@Parameter(name="*")
@dataclass(frozen=True)
class TopicOptions(KeepingOptions):
    """The options of a new topic."""

    partitions: Annotated[int | None, Parameter(name=("--partitions", "-p"))] = None
    "The number of partitions (1)."
    replication: Annotated[int | None, Parameter(name=("--replication", "-r"))] = None
    "The number of SPUs that keep a copy of each partition (1)."
    ignore_rack_assignment: Annotated[
        bool, Parameter(name=("--ignore-rack-assignment", "-i"), negative="")
    ] = False
    "Assign replicas without regard to the racks of the SPUs."
    replica_assignment: Annotated[Path | None, Parameter(name=("--replica-assignment", "-f"))] = (
        None
    )
    (
        "A JSON file with the SPU ids of each partition, the leader first: "
        '[{"id": 0, "replicas": [5001, 5002]}], or the same under "partitions".'
    )
    dedup: Annotated[bool, Parameter(negative="")] = False
    "Recognize the repetition of each of a producer's last 5 records."
    system: Annotated[bool, Parameter(name=("--system", "-s"), negative="")] = False
    "Create a system topic, which lists show only on request."

    @property
    def deduplication(self) -> Deduplication | None:
        given = super().deduplication
        return Deduplication(DEDUP_COUNT_DEFAULT) if given is None and self.dedup else given


def given_names(options: TopicOptions) -> Iterator[str]:
    """The options that the command line names."""
    for one in fields(options):
        if getattr(options, one.name) not in (None, False):
            yield f"--{one.name.replace('_', '-')}"


def refuse_beside(option: str, others: Iterator[str]) -> None:
    """Raises CycloptsError if there is another option beside one that stands alone."""
    for other in others:
        raise CycloptsError(msg=f"the argument '{option} <PATH>' cannot be used with '{other}'")


def spec_of(options: TopicOptions, assigned: Assigned | None) -> TopicSpec:
    """The spec of a new topic; `assigned`: the content of the assignment file, if one is named.

    Raises CycloptsError for options that contradict each other, InvalidRequest.
    """
    if assigned is None:
        replicas: Computed | Assigned = Computed(
            partitions=1 if options.partitions is None else options.partitions,
            replication_factor=1 if options.replication is None else options.replication,
            ignore_racks=options.ignore_rack_assignment,
        )
    else:
        counts = ("--partitions", "--replication", "--ignore-rack-assignment")
        refuse_beside(
            "--replica-assignment", (name for name in given_names(options) if name in counts)
        )
        replicas = assigned
    return TopicSpec(replicas=replicas, system=options.system, **changes(options))
