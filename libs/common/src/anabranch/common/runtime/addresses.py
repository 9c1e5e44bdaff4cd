"""Addresses: where a service listens, the URLs of HTTP servers, the file of a cluster's. Pure."""

from urllib.parse import urlsplit

from anabranch.common.errors import InvalidSetting

ENDPOINTS_FILE = "endpoints.json"
"""The file in a data directory that names the addresses of its cluster."""


def parse_bind(bind: str) -> tuple[str, int]:
    """``host:port`` (``[v6]:port``) as host and port, port 0 = any. Raises InvalidSetting."""
    host, colon, port = bind.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidSetting(
            "not an address to listen on", remedy="write it as host:port", bind=bind
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_base_url(text: str) -> bool:
    """Whether the text is the URL of an HTTP server, perhaps with a path."""
    try:
        parts = urlsplit(text)
        wrong = parts.query or parts.fragment or parts.port == 0
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not wrong
