"""The options of a table of metadata: Spark's texts → `TableOptions`. Pure, but for an endpoints
file."""

from dataclasses import dataclass, field

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import scope_name
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.spark.options import places, streams
from anabranch.spark.options.places import Place, TierTwo, parse_place
from anabranch.spark.options.read import Division, parse_division
from anabranch.spark.options.streams import Matching, Which, parse_streams
from anabranch.spark.options.texts import Texts, refuse_unknown

OPTION = "table"
DIVISION_NAMES = ("target_partition_bytes", "min_partitions")
_PLACES: dict[str, tuple[type[Place], ...]] = {
    "streams": (NatsTarget, TierTwo),
    "segments": (NatsTarget, TierTwo),
    "epochs": (NatsTarget, TierTwo),
    "transactions": (NatsTarget,),
    "reader_groups": (NatsTarget,),
    "blocks": (TierTwo,),
}
NAMES = tuple(_PLACES)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of one read of a table; `division` is for `blocks` alone."""

    table: str
    which: Which
    place: Place
    division: Division = field(default_factory=Division)


def parse_table_name(options: Texts) -> str:
    """Raises InvalidRequest for an unknown table."""
    name = options[OPTION]
    if name not in NAMES:
        raise InvalidRequest(
            "there is no such table", remedy=f"name one of {', '.join(NAMES)}", found=name[:200]
        )
    return name


def parse_table(options: Texts) -> TableOptions:
    """Parse the options from Spark, whose names are in lower case.

    Without a stream, all streams are meant, or those of the option `scope`. Raises Invalid errors,
    and Unavailable or Unauthorized for an endpoints file.
    """
    table = parse_table_name(options)
    division = DIVISION_NAMES if table == "blocks" else ()
    refuse_unknown(options, (OPTION, *streams.NAMES, *places.NAMES, *division))
    place = parse_place(options)
    if not isinstance(place, _PLACES[table]):
        needed = "tier2" if table == "blocks" else "nats_url"
        raise InvalidRequest(
            f"the table {table} is not read from there", remedy=f"give the option {needed}"
        )
    return TableOptions(table, parse_which(options), place, parse_division(options))


def parse_which(options: Texts) -> Which:
    """The streams that the options name, by default all. Raises Invalid errors."""
    if any(options.get(name) for name in streams.NAMES if name != "scope"):
        return parse_streams(options)
    return Matching(".*", scope_name(options["scope"]) if options.get("scope") else None)
