"""How the events of a read become columns: the options `payload` and `payload_schema`. Pure.

bytes  the column `event` holds them as they were written (default)
arrow  each event is an Arrow table, as the client's `ArrowSerializer` writes it; the columns of the
       tables are those of the read
"""

from dataclasses import dataclass

from anabranch.common.errors import InvalidRequest
from anabranch.spark.options.columns import Columns, parse_columns
from anabranch.spark.options.texts import Texts

NAMES = ("payload", "payload_schema")
_EVENT = "event"


@dataclass(frozen=True, slots=True)
class ArrowPayload:
    """`ddl`: the tables' columns as Spark writes them, `id INT, name STRING`; None: as those of the
    first event."""

    ddl: str | None = None


def parse_payload(options: Texts) -> ArrowPayload | None:
    """None: the events stay bytes. Raises InvalidRequest."""
    kind = options.get("payload", "bytes").lower()
    ddl = (options.get("payload_schema") or "").strip() or None
    if kind == "arrow":
        return ArrowPayload(ddl)
    if kind != "bytes":
        raise InvalidRequest(
            "the option payload is not understood", remedy="give bytes or arrow", found=kind[:200]
        )
    if ddl is not None:
        raise InvalidRequest(
            "the option payload_schema goes with Arrow payloads",
            remedy="add payload=arrow, or omit payload_schema and decode the column event with "
            "from_json",
        )
    return None


def parse_read_columns(options: Texts) -> Columns:
    """The columns about events; with Arrow payloads none but those that the user names.

    Raises InvalidRequest.
    """
    if parse_payload(options) is None:
        return parse_columns(options)
    if options.get("columns") is None:
        return ()
    found = parse_columns(options)
    if _EVENT in found:
        raise InvalidRequest(
            "an Arrow payload has no column event",
            remedy="omit event from the option columns; or give payload=bytes",
        )
    return found
