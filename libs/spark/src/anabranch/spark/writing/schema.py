"""Whether a DataFrame has the columns that a write takes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import BinaryType, DataType, StringType, StructType, TimestampType

from anabranch.common.errors import InvalidRequest

AS_JSON = "put everything into the event: df.selectExpr('to_json(struct(*)) AS event')"
_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "event": (BinaryType, StringType),
    "routing_key": (StringType,),
    "event_time": (TimestampType,),
}
_CASTS = {
    "event": f"cast it to a string or binary, or {AS_JSON}",
    "routing_key": "cast it to a string",
    "event_time": "cast it to a timestamp",
}


@dataclass(frozen=True, slots=True)
class Written:
    """Which of the optional columns the rows have."""

    routing_key: bool
    event_time: bool


def written_columns(schema: StructType) -> Written:
    """Raises InvalidRequest, with the remedy, for a column that is missing, unknown, repeated or of
    another type."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        if field.name not in _TYPES:
            raise InvalidRequest(
                f"the column {field.name!r} cannot be written",
                remedy=f"select event, routing_key and event_time, or {AS_JSON}",
            )
        if names.count(field.name) > 1:
            raise InvalidRequest(f"the column {field.name!r} exists twice", remedy="select it once")
        if not isinstance(field.dataType, _TYPES[field.name]):
            raise InvalidRequest(
                f"the column {field.name!r} cannot have the type {field.dataType.simpleString()}",
                remedy=_CASTS[field.name],
            )
    if "event" not in names:
        raise InvalidRequest("the rows have no column 'event'", remedy=AS_JSON)
    return Written("routing_key" in names, "event_time" in names)
