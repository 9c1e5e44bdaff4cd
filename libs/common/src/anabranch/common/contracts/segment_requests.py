"""Requests to segment stores that travel on `subjects.segment_request(<container>, <verb>)`.

A request is one packet (`wire.packet`) that holds the verb's message, and so is the reply: the
verb's answer or a `Failed`. Request ids are the caller's; the reply repeats them. Bytes that do
not fit belong on a TCP connection to the store.
"""

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.common.wire.message import Message
from anabranch.common.wire.requests import REQUESTS

PAYLOAD_SIZE_BYTES_MAX = 512 * 1024
"""Of a packet's payload, in requests and replies alike, so that what fits in fits out."""
MERGE_SOURCES_MAX = 1000
MERGE_NAMES_SIZE_BYTES_MAX = 40 * 1024
"""Of all sources together: the answer names each with two numbers, and must fit in a packet."""


class Exchange(NamedTuple):
    """What is asked and what is answered; a `Failed` may come instead."""

    request: type[Message]
    reply: type[Message]


SEGMENT_REQUESTS: Mapping[str, Exchange] = {
    row.verb: Exchange(row.request, row.reply) for row in REQUESTS if row.verb
}
"""By verb. `setup` opens no session here: it ends an older one and says what is stored."""
