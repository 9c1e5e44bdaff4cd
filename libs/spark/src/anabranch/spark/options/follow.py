"""The options of following: Spark's texts → `FollowOptions`. Pure, but for an endpoints file.

start                  head (default), tail, a time, or positions: where a new query begins
max_bytes_per_trigger  about the most stored bytes of a micro-batch
max_rows_per_trigger   about the most events of a micro-batch
failOnDataLoss         true (default): the query fails if events that it has not read are gone
reader_group           scope/group: the subscriber that releases the processed events

The columns, the payload and the division are those of a batch read.
"""

from dataclasses import dataclass, field

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import parse_segment_name
from anabranch.common.model.reader_group import GroupRef, group_ref
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.spark.options import columns, payload, places, read, streams
from anabranch.spark.options.bounds import AtTime, Bound, parse_bound
from anabranch.spark.options.columns import Columns
from anabranch.spark.options.payload import ArrowPayload, parse_payload, parse_read_columns
from anabranch.spark.options.places import parse_cluster
from anabranch.spark.options.read import Division, ReadOptions, parse_division, parse_options
from anabranch.spark.options.streams import Matching, Named, Tagged, Which, parse_streams
from anabranch.spark.options.texts import Texts, number, refuse_unknown, switch

NAMES = frozenset(
    (
        *streams.NAMES, *places.NAMES, "start", "columns", "target_partition_bytes",
        "min_partitions", "max_bytes_per_trigger", "max_rows_per_trigger", "failondataloss",
        "reader_group", *payload.NAMES,
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Budget:
    """About the most stored bytes and events of a micro-batch; None: without a limit."""

    bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """The options of one streaming read, which Spark passes to its workers."""

    which: Which
    place: NatsTarget
    """The running cluster; tier 2 alone has no cuts."""
    start: Bound = "head"
    """Where a query without a checkpoint begins."""
    columns: Columns = columns.DEFAULT
    division: Division = field(default_factory=Division)
    budget: Budget = Budget()
    fail_on_data_loss: bool = True
    """Whether the query fails if events that it has not read are truncated or deleted."""
    reader_group: GroupRef | None = None
    """The subscriber whose cut follows the query's commits."""
    payload: ArrowPayload | None = None
    """How to decode the events; None: not at all."""


def parse_follow(options: Texts) -> FollowOptions:
    """Parse the options from Spark, whose names are in lower case. Raises Invalid errors, and
    Unavailable or Unauthorized for an endpoints file."""
    refuse_unknown(options, NAMES)
    which = parse_streams(options)
    return FollowOptions(
        which=which,
        place=parse_cluster(options, "following a stream"),
        start=_start(options, which),
        columns=parse_read_columns(options),
        division=parse_division(options),
        budget=Budget(
            _limit("max_bytes_per_trigger", options), _limit("max_rows_per_trigger", options)
        ),
        fail_on_data_loss=switch("failOnDataLoss", options.get("failondataloss"), True),
        reader_group=_group(options, which),
        payload=parse_payload(options),
    )


def parse_inference(options: Texts) -> ReadOptions:
    """The batch read whose first event has the columns of a payload.

    `options`: those of a batch or of a streaming read, because Spark asks for the columns before it
    says which. Raises as `parse_options`, for options that neither has too.
    """
    refuse_unknown(options, read.NAMES | NAMES)
    return parse_options({name: text for name, text in options.items() if name in read.NAMES})


def _start(options: Texts, which: Which) -> Bound:
    start = parse_bound("start", options, "head")
    if isinstance(start, str | AtTime):
        return start
    if not isinstance(which, Named):
        raise InvalidRequest(
            "a query starts at positions of streams that it names",
            remedy="name the streams, or start at head, tail or a time",
        )
    for segment in start:
        if parse_segment_name(segment)[0] not in which.streams:
            raise InvalidRequest(
                "a position names a segment of a stream that the query does not follow",
                remedy="name segments of the streams that the query names", segment=segment,
            )  # fmt: skip
    return start


def _limit(name: str, options: Texts) -> int | None:
    text = options.get(name)
    return None if text is None else number(name, text, 1)


def _group(options: Texts, which: Which) -> GroupRef | None:
    text = options.get("reader_group")
    if text is None:
        return None
    if isinstance(which, Matching | Tagged):
        raise InvalidRequest(
            "a reader group subscribes to streams by name",
            remedy="name the streams with the option streams, or omit reader_group",
        )
    return group_ref(text)
