"""A request as a service receives it: its body, and the headers beside the body.

Every entry over NATS or HTTP parses its requests into an `Envelope` once. The headers have the same
names at all of them: `traceparent` (W3C), and `authorization` with the scheme `Bearer`. Packets
carry the same in fields: `trace_parent` and `token` of a request, and `token` of the `Hello` that
opens a connection.

No service looks at tokens yet. They travel so that a later release can demand them of clients of
this one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

TRACE_PARENT = "traceparent"
AUTHORIZATION = "authorization"
"""The header that carries the token. NATS compares the names of headers exactly."""
_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request with its context.

    `trace_parent`: the span of the caller, "" if its work is not traced.
    `token`: proves the identity of the caller, "" if it sent none. A secret, so not in `repr`.
    """

    body: bytes
    trace_parent: str = ""
    token: str = field(default="", repr=False)

    @classmethod
    def received(cls, body: bytes, headers: Mapping[str, str] | None) -> "Envelope":
        """The envelope of a request that came with these headers; NATS has None without any."""
        if not headers:
            return cls(body)
        return cls(body, headers.get(TRACE_PARENT, ""), bearer(headers.get(AUTHORIZATION, "")))

    def headers(self) -> dict[str, str] | None:
        """The headers of the outgoing request; None without any."""
        found = {}
        if self.trace_parent:
            found[TRACE_PARENT] = self.trace_parent
        if self.token:
            found[AUTHORIZATION] = f"Bearer {self.token}"
        return found or None


def bearer(authorization: str) -> str:
    """The token in the header's value; "" if it names another scheme."""
    is_bearer = authorization[: len(_BEARER)].lower() == _BEARER
    return authorization[len(_BEARER) :].strip() if is_bearer else ""
