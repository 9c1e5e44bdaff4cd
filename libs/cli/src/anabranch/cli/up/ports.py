"""Ports on the loopback address, chosen before the parts start and kept while they run.

A port is chosen below the range from which the system takes the local ports of outgoing
connections. Otherwise a client that reconnects to a restarting part could be given the part's own
port, and then either holds it or connects to itself.
"""

import socket
from pathlib import Path

from anabranch.common.errors import PortInUse
from anabranch.common.runtime.ids import Rng

LOOPBACK = "127.0.0.1"
PORT_MIN = 20_000
EPHEMERAL_PORT_MIN = 32_768
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES_MAX = 200


def choose_port(wanted: int, rng: Rng, taken: frozenset[int] = frozenset()) -> int:
    """`wanted` if it is free; for 0, any free port outside `taken`. Raises PortInUse."""
    if wanted:
        if wanted in taken or not is_free(wanted):
            raise PortInUse("port is taken", host=LOOPBACK, port=wanted)
        return wanted
    ceiling = max(PORT_MIN + 1_000, _ephemeral_port_min())
    for _ in range(_TRIES_MAX):
        port = PORT_MIN + int(rng.random() * (ceiling - PORT_MIN))
        if port not in taken and is_free(port):
            return port
    raise PortInUse("no free port found", host=LOOPBACK, first=PORT_MIN, last=ceiling - 1)


def is_free(port: int) -> bool:
    """Whether a process could listen on the loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _ephemeral_port_min() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_PORT_MIN
