"""Which columns a read has: the option `columns`, names with commas between them. Pure.

The default ones come first in every read that names none; the others cost time, and are made on
request.
"""

from anabranch.common.errors import InvalidRequest
from anabranch.spark.options.texts import Texts

DEFAULT = ("event", "routing_key", "event_time", "segment", "offset", "index")
ON_REQUEST = ("scope", "stream", "writer_id", "event_number", "key_position", "watermark")
"""`key_position`: where the event's key lies in [0, 1), null without a key; `watermark`: the
stream's watermark as of the end of the read or micro-batch, null if it has none."""

Columns = tuple[str, ...]


def parse_columns(options: Texts) -> Columns:
    """The columns in the order named. Raises InvalidRequest for an unknown one or one twice."""
    text = options.get("columns")
    if text is None:
        return DEFAULT
    names = tuple(name.strip() for name in text.split(","))
    known = (*DEFAULT, *ON_REQUEST)
    if not set(names) <= set(known) or len(set(names)) != len(names):
        raise InvalidRequest(
            "the option columns is not understood",
            remedy=f"name each at most once, with commas between them, of: {', '.join(known)}",
            found=text[:200],
        )
    return names
