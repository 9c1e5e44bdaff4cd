"""Addresses in settings: where a service listens, and the URLs of HTTP servers. Pure."""

from urllib.parse import urlsplit

from anabranch.common.errors import InvalidSetting


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
