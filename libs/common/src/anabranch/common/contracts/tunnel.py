"""Tunnels: the way of a gateway's clients to segment stores.

A tunnel is a WebSocket on `PATH` that carries the bytes of the store protocol (`wire.packet`) both
ways, in binary messages whose borders have no meaning.
"""

from urllib.parse import quote

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.cluster import Endpoint

SUBPROTOCOL = "anabranch-store.1"
"""The subprotocol that both sides name in the handshake; its number changes with the format."""
PATH = "/v1/stores/{store}/connection"
"""`store` is the address of the store, host:port, as the cluster knows it."""
PIECE_SIZE_BYTES_MAX = 256 * 1024
"""The largest message that a client or a gateway sends."""
MESSAGE_SIZE_BYTES_MAX = 1024 * 1024
"""The largest message, in one fragment or several, that either of them accepts."""
PORT_MAX = 65_535


def tunnel_path(store: Endpoint) -> str:
    """The path of a tunnel to this store."""
    return PATH.replace("{store}", quote(str(store), safe=":"))


def tunnel_end(store: str) -> Endpoint:
    """Parse the address in a path, without percent-encoding. Raises InvalidRequest."""
    host, _, port = store.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise InvalidRequest("this is no address of a store", remedy="name host:port", store=store)
    return Endpoint(host, int(port))
