"""The options of a batch read: Spark's texts → `ReadOptions`. Pure, but for an endpoints file."""

from dataclasses import dataclass

from anabranch.spark.options import columns, payload, places, streams
from anabranch.spark.options.bounds import Bound, parse_bound
from anabranch.spark.options.columns import Columns
from anabranch.spark.options.payload import ArrowPayload, parse_payload, parse_read_columns
from anabranch.spark.options.places import Place, parse_place
from anabranch.spark.options.streams import Which, parse_streams
from anabranch.spark.options.texts import Texts, number, refuse_unknown, switch

MIB = 1024 * 1024
TARGET_PARTITION_BYTES = 64 * MIB
PARTITION_COUNT_MAX = 10_000

NAMES = frozenset(
    (
        *streams.NAMES, *places.NAMES, "start", "end", "columns", "target_partition_bytes",
        "min_partitions", *payload.NAMES, "push_filters",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Division:
    """How a read is divided among tasks. `min_partitions` None: as many as this machine has
    processors."""

    target_partition_bytes: int = TARGET_PARTITION_BYTES
    min_partitions: int | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read, which Spark passes to its workers.

    The read covers the events of each stream from `start` on and before `end`.
    """

    which: Which
    place: Place
    start: Bound = "head"
    end: Bound = "tail"
    columns: Columns = columns.DEFAULT
    division: Division = Division()
    payload: ArrowPayload | None = None
    """How to decode the events; None: not at all."""
    push_filters: bool = False
    """Whether filters leave out segments and bytes; the session must pass filters on."""


def parse_options(options: Texts) -> ReadOptions:
    """Parse the options from Spark, whose names are in lower case. Raises Invalid errors, and
    Unavailable or Unauthorized for an endpoints file."""
    refuse_unknown(options, NAMES)
    return ReadOptions(
        which=parse_streams(options),
        place=parse_place(options),
        start=parse_bound("start", options, "head"),
        end=parse_bound("end", options, "tail"),
        columns=parse_read_columns(options),
        division=parse_division(options),
        payload=parse_payload(options),
        push_filters=switch("push_filters", options.get("push_filters"), False),
    )


def parse_division(options: Texts) -> Division:
    """Raises InvalidRequest."""
    minimum = options.get("min_partitions")
    return Division(
        number(
            "target_partition_bytes", options.get("target_partition_bytes"), TARGET_PARTITION_BYTES
        ),
        None if minimum is None else number("min_partitions", minimum, 1, most=PARTITION_COUNT_MAX),
    )
