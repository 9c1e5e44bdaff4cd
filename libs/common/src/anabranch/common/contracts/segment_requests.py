"""Requests to segment stores that travel on `subjects.segment_request(<container>, <verb>)`.

A request is one packet (`wire.packet`) with the verb's message. The reply is one packet with the
verb's answer or a `Failed`, and repeats the caller's request id. A payload that does not fit needs
a TCP connection to the store.
"""

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.common.wire.message import Message
from anabranch.common.wire.requests import REQUESTS

PAYLOAD_SIZE_BYTES_MAX = 512 * 1024
"""The largest payload of a packet, the same for requests and replies."""
MERGE_SOURCES_MAX = 1000
MERGE_NAMES_SIZE_BYTES_MAX = 40 * 1024
"""The size of all sources' names: the answer names each with two numbers in one packet."""


class Exchange(NamedTuple):
    """The types of a request and of its reply; a `Failed` may come instead of the reply."""

    request: type[Message]
    reply: type[Message]


SEGMENT_REQUESTS: Mapping[str, Exchange] = {
    row.verb: Exchange(row.request, row.reply) for row in REQUESTS if row.verb
}
"""By verb. Here `setup` opens no session: it ends an older one and returns the stored state."""
